"""Operators tried out: how a device's kernel lays its results out, told by running it on zeros."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes

from trident import aside
from trident.capture.unused_strides import Assignment
from trident.errors import UnsupportedError

_MAX_KNOWN = 4096
_known: dict[Any, list[Layout | None] | str] = {}


class Layout(NamedTuple):
    """The geometry of a tensor, in numbers."""

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    device: str

    def shown_strides(self) -> list[int]:
        """The strides, without those that no element shows."""
        unused = set(unused_axes(self.sizes))
        return [0 if axis in unused else s for axis, s in enumerate(self.strides)]


class Given:
    """The geometry that a tensor had before an operator that may change it."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.shape, self.strides = tensor.shape, tensor.stride()
        self.dtype, self.device, self.layout = tensor.dtype, tensor.device, tensor.layout

    def stride(self) -> Sequence[Any]:
        return self.strides


_TENSORS = (torch.Tensor, Given)


def dense_in(values: Any) -> list[Any]:
    return [
        each
        for each in pytree.tree_leaves(values)
        if isinstance(each, _TENSORS) and each.layout is torch.strided
    ]


def unused_axes(sizes: Sequence[Any]) -> list[int]:
    """The axes along which there is no second element."""
    if is_empty(sizes):
        return [*range(len(sizes))]
    return [axis for axis, size in enumerate(sizes) if type(size) is int and size == 1]


def is_empty(sizes: Sequence[Any]) -> bool:
    """Whether there are no elements; a size that is a symbol is at least 2."""
    return any(type(size) is int and size == 0 for size in sizes)


def layout_of(tensor: Any, assignment: Assignment) -> Layout:
    return Layout(
        tuple(map(assignment.number, tensor.shape)),
        tuple(map(assignment.number, tensor.stride())),
        tensor.dtype,
        tensor.device.type,
    )


def _frozen(value: Any, assignment: Assignment) -> Any:
    """A hashable description of an operator's arguments."""
    if isinstance(value, _TENSORS):
        return layout_of(value, assignment)
    if isinstance(value, (list, tuple)):
        return tuple(_frozen(each, assignment) for each in value)
    if isinstance(value, dict):
        return tuple((name, _frozen(each, assignment)) for name, each in value.items())
    return type(value).__name__, str(assignment.number(value))


def layouts_in(result: Any, assignment: Assignment) -> list[Layout | None]:
    """The geometry of each of an operator's results; None where it is no tensor, or undefined."""
    return [
        layout_of(each, assignment) if dense_in(each) else None
        for each in pytree.tree_leaves(result)
    ]


def layouts_of_kernel(
    func: torch._ops.OpOverload, args: Any, kwargs: Mapping[str, Any], assignment: Assignment
) -> list[Layout | None] | str:
    """The geometry of each of the kernel's results, or in words what it raises.

    Raises:
        UnsupportedError: if memory does not suffice to run it.
    """
    key = (func, _frozen(args, assignment), _frozen(kwargs, assignment))
    if key not in _known:
        if len(_known) >= _MAX_KNOWN:
            _known.clear()
        # An integer may be an index, for which 1 is too large, or a divisor. On a GPU division by
        # zero is no error, but an index that is too large ends the process's use of the device.
        on_gpu = any(each.device.type == "cuda" for each in dense_in((args, kwargs)))
        found = _run(func, args, kwargs, assignment, 0)
        if isinstance(found, str) and not on_gpu:
            found = _run(func, args, kwargs, assignment, 1)
        _known[key] = found
    return _known[key]


def _run(
    func: torch._ops.OpOverload,
    args: Any,
    kwargs: Mapping[str, Any],
    assignment: Assignment,
    content: int,
) -> list[Layout | None] | str:
    """Runs the kernel on tensors of nothing but ``content``."""

    def real(value: Any) -> Any:
        if not isinstance(value, _TENSORS):
            return assignment.number(value)
        layout = layout_of(value, assignment)
        made = torch.empty_strided(
            layout.sizes, layout.strides, dtype=value.dtype, device=value.device
        )
        return made.fill_(content)

    def result() -> list[Layout | None] | str:
        with (
            _disable_current_modes(),
            torch.no_grad(),
            torch._C._AutoDispatchBelowAutograd(),
        ):
            try:
                given, named = pytree.tree_map(real, (args, dict(kwargs)))
                return layouts_in(func(*given, **named), assignment)
            except torch.OutOfMemoryError as error:
                raise UnsupportedError(
                    f"there is no memory to try out how {func} lays its result out"
                ) from error
            except Exception as error:
                return f"{error!r:.200}"

    if torch.Tag.nondeterministic_seeded not in func.tags:
        return result()
    devices = {each.device for each in dense_in((args, kwargs)) if each.device.type == "cuda"}

    def result_without_draws() -> list[Layout | None] | str:
        with torch.random.fork_rng(devices):
            return result()

    return aside.run(result_without_draws)  # the call itself does not ask for a generator's state
