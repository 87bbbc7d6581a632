"""What is known of tensors' addresses in a trace: their values modulo 16."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import disable_proxy_modes_tracing

from trident.errors import UnsupportedError


def real_address_mod_16(tensor: torch.Tensor) -> int:
    """What a real tensor's address is modulo 16; 0 where it has no elements."""
    return tensor.data_ptr() % 16 if tensor.numel() else 0


class Addresses:
    """Addresses modulo 16, in bytes; storages that operators make are aligned.

    Args:
        stand_in: gives the fake of a tensor, which may be real.
    """

    def __init__(self, stand_in: Callable[[torch.Tensor], torch.Tensor]) -> None:
        self._stand_in = stand_in
        self._starts: dict[int, Any] = {}  # of each input's storage, by its fake's identity

    def note(self, tensor: torch.Tensor, fake: torch.Tensor, mod_16: int | torch.SymInt) -> None:
        """Notes what an input's address is modulo 16, a SymInt if it varies.

        Raises:
            UnsupportedError: its address varies and it shares memory with another input.
        """
        start = mod_16 - int(tensor.storage_offset()) * tensor.element_size()
        known = self._starts.setdefault(fake.untyped_storage()._cdata, start)
        if known is not start and any(isinstance(each, torch.SymInt) for each in (known, start)):
            raise UnsupportedError("a tensor whose address varies shares memory with another")

    def mod_16(self, tensor: torch.Tensor) -> int | torch.SymInt:
        """A number that is a tensor's address modulo 16."""
        tensor = self._stand_in(tensor)
        if tensor.numel() == 0:
            return 0
        start = self._starts.get(tensor.untyped_storage()._cdata, 0)
        # An address is no number that the program computes.
        with disable_proxy_modes_tracing():
            address: int | torch.SymInt = start + tensor.storage_offset() * tensor.element_size()
            return address

    def is_aligned(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor's address is a multiple of 16."""
        with disable_proxy_modes_tracing():
            return bool(self.mod_16(tensor) % 16 == 0)
