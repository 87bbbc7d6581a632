"""Stand-ins for a GPU's description, for corpora that ask for it before they launch anything.

No tensor is ever on that GPU, and `torch.cuda.is_available()` stays False.
"""

from __future__ import annotations

import dataclasses
import importlib
import sys
from typing import Any

import pytest
import torch
from triton_on_cpu import run_once


class _NoDevice:
    """Stands in for `torch.cuda.device`: there is nothing to switch to."""

    def __init__(self, device: Any) -> None:
        pass

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: Any) -> None:
        pass


@dataclasses.dataclass
class Properties:
    """What `torch.cuda.get_device_properties` says of an H200, as far as corpora ask."""

    name: str = "NVIDIA H200"
    major: int = 9
    minor: int = 0
    multi_processor_count: int = 132
    total_memory: int = 150 << 30
    L2_cache_size: int = 60 << 20
    shared_memory_per_block_optin: int = 227 << 10
    warp_size: int = 32


H200 = Properties()


def describe_h200(patch: pytest.MonkeyPatch) -> None:
    """`torch.cuda` describes an H200 until the patch is undone."""
    patch.setattr(torch.cuda, "get_device_name", lambda device=None: H200.name)
    patch.setattr(torch.cuda, "device_count", lambda: 1)
    patch.setattr(torch.cuda, "current_device", lambda: 0)
    patch.setattr(torch.cuda, "get_device_properties", lambda device=None: H200)
    patch.setattr(torch.cuda, "get_device_capability", lambda device=None: (9, 0))
    patch.setattr(torch.cuda, "synchronize", lambda device=None: None)
    patch.setattr(torch.cuda, "device", _NoDevice)


def import_flag_gems(patch: pytest.MonkeyPatch, without_gpu: bool) -> Any:
    """FlagGems, ready for the Triton that is installed.

    FlagGems 5.0.2 knows Triton up to 3.6. In later versions block pointers have no type of their
    own, which its generated kernels ask for, and launches go on taking all arguments.
    """
    if without_gpu:
        patch.setenv("GEMS_VENDOR", "nvidia")
        patch.setattr("triton.testing.do_bench", run_once)
    package = importlib.import_module("flag_gems")
    entry: Any = sys.modules["flag_gems.utils.libentry"]
    if entry.minor_version > 6:
        patch.setattr(entry, "minor_version", 6)
        configs = importlib.import_module("flag_gems.utils.codegen_config_utils").CODEGEN_COFIGS
        for config in filter(None, configs.values()):
            patch.setattr(config, "prefer_block_pointer", False)
    return package
