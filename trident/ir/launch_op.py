"""The operator that stands for one Triton launch in a captured graph."""

from __future__ import annotations

import torch

# `tensors` are the launch's tensor arguments in parameter order. All count as written here: what a
# kernel stores to is not known before it is compiled. `index` points into the capture's launches.
LIBRARY = torch.library.Library("trident", "DEF")
LIBRARY.define("launch(Tensor(a!)[] tensors, int index) -> ()")


@torch.library.register_fake("trident::launch", lib=LIBRARY)
def _launch_without_running(tensors: list[torch.Tensor], index: int) -> None:
    """A trace only records the launch."""


LAUNCH = torch.ops.trident.launch.default
LAUNCH_NAME = "trident::launch"
