"""Calls in grad mode: which of them leave nothing behind that autograd could see."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from trident.errors import UnsupportedError

REASON = (
    "the call records gradients (grad mode is on and a tensor requires grad); "
    "call it under torch.no_grad() or torch.inference_mode()"
)


class RecordsGradients(UnsupportedError):
    """A host program records no gradients, and somebody could ask for them after the call."""

    def __init__(self) -> None:
        super().__init__(REASON)


def may_record(tensors: Iterable[torch.Tensor]) -> bool:
    """Whether a call on these tensors can record gradients."""
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)


class GradientWatch:
    """What autograd knows of a trace's tensors before the trace.

    Args:
        fakes: what stands for the call's tensors.
    """

    def __init__(self, fakes: Sequence[torch.Tensor]) -> None:
        self._fakes = fakes
        self._enabled = torch.is_grad_enabled()
        self._before = [_history(fake) for fake in fakes]

    def check(self, outputs: Iterable[torch.Tensor]) -> None:
        """Refuses if a result, an assigned tensor or an input carries gradients of the trace.

        An input does so if it was written with what requires grad. A view of a weight requires grad
        like its base, also one that is made without gradients: only where grad mode is off for the
        whole call does the host program make it as eager does.

        Raises:
            RecordsGradients: in that case.
        """
        if any(self._carries_gradients(output) for output in outputs):
            raise RecordsGradients()
        for fake, before in zip(self._fakes, self._before, strict=True):
            if any(new is not old for new, old in zip(_history(fake), before, strict=True)):
                raise RecordsGradients()

    def _carries_gradients(self, output: torch.Tensor) -> bool:
        if not output.requires_grad:
            return False
        view = output._is_view() and output.grad_fn is None
        return self._enabled or not view or not any(output._base is fake for fake in self._fakes)


def _history(fake: torch.Tensor) -> tuple[Any, ...]:
    return fake.requires_grad, fake.grad_fn, fake.grad if fake.is_leaf else None
