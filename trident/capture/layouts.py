"""Fake tensors that are laid out as the device's kernels lay theirs out.

PyTorch's fake tensors do not always have the strides that a kernel gives its result: `group_norm`
keeps the order of a channels-last input on the CPU, and of an axis with no second element many
operators make another stride than their descriptions say. A program computes views and plans memory
from the strides of the trace, so an operator with an input that is not contiguous is run once, on
zeros of the same geometry, and its result gets the kernel's strides.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch._subclasses.fake_tensor import FakeTensorMode, in_kernel_invocation_manager
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes

from trident import aside
from trident.capture.unused_strides import Assignment, UnusedStrides
from trident.errors import UnsupportedError

# Their results are contiguous, whatever they are given.
_CONTIGUOUS = frozenset(
    {"aten::mm", "aten::bmm", "aten::addmm", "aten::baddbmm", "aten::embedding"}
)
# Strides of theirs that elements show follow from their inputs in one way, written once in PyTorch.
_TRUSTED = _CONTIGUOUS | {
    *("aten::clone", "aten::_to_copy", "aten::index_select", "aten::gather"),
    *("aten::sum", "aten::mean", "aten::amax", "aten::amin", "aten::argmax", "aten::cumsum"),
}
# What they are given says all of their result.
_EXPLICIT = frozenset({"aten::as_strided", "aten::as_strided_", "aten::set_"})

_MAX_KNOWN = 4096
_known: dict[Any, list[_Layout] | None] = {}


class _Layout(NamedTuple):
    """The geometry of a tensor, in numbers."""

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    device: str

    def shown_strides(self) -> list[int]:
        """The strides, without those that no element shows."""
        unused = set(_unused_axes(self.sizes))
        return [0 if axis in unused else s for axis, s in enumerate(self.strides)]


class _Given:
    """The geometry that a tensor had before an operator that may change it."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.shape, self.strides = tensor.shape, tensor.stride()
        self.dtype, self.device, self.layout = tensor.dtype, tensor.device, tensor.layout

    def stride(self) -> Sequence[Any]:
        return self.strides


_TENSORS = (torch.Tensor, _Given)


class KernelLayouts(FakeTensorMode):
    """The fake tensors of a trace.

    Args:
        unused: of a trace with symbols, the strides that no element shows.
        environment: the ShapeEnv of these symbols.
    """

    def __init__(self, unused: UnusedStrides | None = None, environment: Any = None) -> None:
        super().__init__(allow_non_fake_inputs=True, shape_env=environment)
        self._unused = unused
        self._inside = False

    def dispatch(
        self,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Runs an operator on fake tensors; what it is made of is not looked at."""
        kwargs = kwargs or {}
        if self._inside:
            return super().dispatch(func, types, args, kwargs)
        self._inside = True
        try:
            if not isinstance(func, torch._ops.OpOverload) or not _can_be_tried(func):
                return super().dispatch(func, types, args, kwargs)
            given: Any = (args, kwargs)
            if func._schema.is_mutable:
                given = pytree.tree_map_only(torch.Tensor, _Given, given)
            result = super().dispatch(func, types, args, kwargs)
            self._settle(func, given[0], given[1], result)
            return result
        finally:
            self._inside = False

    def _settle(
        self, func: torch._ops.OpOverload, args: Any, kwargs: Mapping[str, Any], result: Any
    ) -> None:
        """Gives the results the kernel's strides.

        Raises:
            UnsupportedError: if strides that elements show differ, or the kernel cannot be tried.
        """
        results = _dense_in(result)
        if not results:
            return
        given = _dense_in((args, kwargs))
        if all(_is_contiguous(each) for each in given):
            return
        shows_all = not any(_unused_axes(each.shape) for each in (*given, *results))
        if shows_all and not _is_doubtful(func):
            return
        if func._schema.name in _CONTIGUOUS and not any(_is_empty(r.shape) for r in results):
            return
        among_symbols = any(
            isinstance(each, torch.SymInt)
            for value in (*given, *results)
            for each in (*value.shape, *value.stride())
        )
        runs: list[tuple[list[_Layout], list[_Layout]]] = []
        for assignment in self._assignments(given):
            found = _layouts_of_kernel(func, args, kwargs, assignment)
            expected = [_layout(each, assignment) for each in results]
            if found is None and assignment.scaled:
                continue  # sizes that belong together need not be multiples alike
            if found is None or not _agree(found, expected, among_symbols):
                raise UnsupportedError(
                    f"{func} lays its result out in a way that is only known once it runs, for an "
                    "input that is not contiguous; give it x.contiguous()"
                )
            runs.append((found, expected))
        for position, result in enumerate(results):
            self._correct(result, [(f[position].strides, e[position].strides) for f, e in runs])

    def _assignments(self, given: Sequence[Any]) -> Iterator[Assignment]:
        """What the symbols among an operator's inputs may stand for."""
        yield Assignment({})
        if self._unused is not None:
            yield from self._unused.assignments(given)

    def _correct(
        self, result: torch.Tensor, runs: Sequence[tuple[tuple[int, ...], tuple[int, ...]]]
    ) -> None:
        """Gives a result the strides that the kernel gave it in each run, where others were
        expected."""
        wrong = [axis for axis in range(result.dim()) if any(f[axis] != e[axis] for f, e in runs)]
        if not wrong:
            return
        strides: list[Any] = list(result.stride())
        for axis in wrong:
            first, *others = (found[axis] for found, _ in runs)
            if all(each == first for each in others):
                strides[axis] = first
            else:
                assert self._unused is not None  # without symbols there is one run
                strides[axis] = self._unused.unknown(first)
        with in_kernel_invocation_manager(self):
            result.as_strided_(result.shape, strides, result.storage_offset())


@functools.cache
def _can_be_tried(func: torch._ops.OpOverload) -> bool:
    return func.namespace == "aten" and func._schema.name not in _EXPLICIT


@functools.cache
def _is_doubtful(func: torch._ops.OpOverload) -> bool:
    """Whether strides that elements show may be other than a trace's."""
    schema = func._schema
    return (
        schema.name not in _TRUSTED
        and torch.Tag.pointwise not in func.tags
        and torch.Tag.nondeterministic_seeded not in func.tags
        and all(argument.alias_info is None for argument in schema.arguments)
    )


def _dense_in(values: Any) -> list[Any]:
    return [
        each
        for each in pytree.tree_leaves(values)
        if isinstance(each, _TENSORS) and each.layout is torch.strided
    ]


def _is_contiguous(tensor: Any) -> bool:
    """Whether all strides are those of a contiguous tensor, whatever its symbols stand for."""
    expected: Any = 1
    for size, stride in zip(reversed(tensor.shape), reversed(tensor.stride()), strict=True):
        size, stride = _expression(size), _expression(stride)
        if stride != expected or size == 0:
            return False
        expected = size * expected
    return True


def _expression(value: Any) -> Any:
    return value.node.expr if isinstance(value, torch.SymInt) else value


def _unused_axes(sizes: Sequence[Any]) -> list[int]:
    """The axes along which there is no second element."""
    if _is_empty(sizes):
        return [*range(len(sizes))]
    return [axis for axis, size in enumerate(sizes) if type(size) is int and size == 1]


def _agree(found: Sequence[_Layout], expected: Sequence[_Layout], strides_too: bool) -> bool:
    """Whether layouts are the same but for strides: all, or those that no element shows."""
    return len(found) == len(expected) and all(
        (mine.sizes, mine.dtype, mine.device) == (theirs.sizes, theirs.dtype, theirs.device)
        and (not strides_too or mine.shown_strides() == theirs.shown_strides())
        for mine, theirs in zip(found, expected, strict=True)
    )


def _is_empty(sizes: Sequence[Any]) -> bool:
    """Whether there are no elements; a size that is a symbol is at least 2."""
    return any(type(size) is int and size == 0 for size in sizes)


def _layout(tensor: Any, assignment: Assignment) -> _Layout:
    return _Layout(
        tuple(map(assignment.number, tensor.shape)),
        tuple(map(assignment.number, tensor.stride())),
        tensor.dtype,
        tensor.device.type,
    )


def _frozen(value: Any, assignment: Assignment) -> Any:
    """A hashable description of an operator's arguments."""
    if isinstance(value, _TENSORS):
        return _layout(value, assignment)
    if isinstance(value, (list, tuple)):
        return tuple(_frozen(each, assignment) for each in value)
    if isinstance(value, dict):
        return tuple((name, _frozen(each, assignment)) for name, each in value.items())
    return type(value).__name__, str(assignment.number(value))


def _layouts_of_kernel(
    func: torch._ops.OpOverload, args: Any, kwargs: Mapping[str, Any], assignment: Assignment
) -> list[_Layout] | None:
    """The geometry of the kernel's results; None if it raises."""
    key = (func, _frozen(args, assignment), _frozen(kwargs, assignment))
    if key not in _known:
        if len(_known) >= _MAX_KNOWN:
            _known.clear()
        # An integer may be an index, for which 1 is too large, or a divisor.
        _known[key] = _run(func, args, kwargs, assignment, 0) or _run(
            func, args, kwargs, assignment, 1
        )
    return _known[key]


def _run(
    func: torch._ops.OpOverload,
    args: Any,
    kwargs: Mapping[str, Any],
    assignment: Assignment,
    content: int,
) -> list[_Layout] | None:
    """Runs the kernel on tensors of nothing but ``content``."""

    def real(value: Any) -> Any:
        if not isinstance(value, _TENSORS):
            return assignment.number(value)
        layout = _layout(value, assignment)
        made = torch.empty_strided(
            layout.sizes, layout.strides, dtype=value.dtype, device=value.device
        )
        return made.fill_(content)

    def result() -> list[_Layout] | None:
        with (
            _disable_current_modes(),
            torch.no_grad(),
            torch._C._AutoDispatchBelowAutograd(),
        ):
            try:
                given, named = pytree.tree_map(real, (args, dict(kwargs)))
                return [_layout(each, assignment) for each in _dense_in(func(*given, **named))]
            except Exception:
                return None

    if torch.Tag.nondeterministic_seeded not in func.tags:
        return result()
    devices = {each.device for each in _dense_in((args, kwargs)) if each.device.type == "cuda"}

    def result_without_draws() -> list[_Layout] | None:
        with torch.random.fork_rng(devices):
            return result()

    return aside.run(result_without_draws)  # the call itself does not ask for a generator's state
