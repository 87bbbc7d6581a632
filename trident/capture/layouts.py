"""Fake tensors that are laid out as the device's kernels lay theirs out.

PyTorch's fake tensors do not always have the strides that a kernel gives its result: `group_norm`
keeps the order of a channels-last input on the CPU, and of an axis with no second element many
operators make another stride than their descriptions say. A program computes views and plans memory
from the strides of the trace, so an operator with an input that is not contiguous is run once, on
zeros of the same geometry, and its result gets the kernel's strides. So is one with several
results: those that the kernel leaves undefined are None, as in eager.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import FakeTensorMode, in_kernel_invocation_manager
from torch.utils import _pytree as pytree
from torch.utils.weak import WeakIdKeyDictionary

from trident.capture.float_arguments import restored
from trident.capture.symbolic_operators import DESCRIBED_IN_PYTHON, check_index
from trident.capture.trials import (
    Given,
    Layout,
    dense_in,
    is_empty,
    layouts_in,
    layouts_of_kernel,
    unused_axes,
)
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
# Their seeds and statistics, which nothing but gradients needs, lie elsewhere than a trace says.
_ATTENTION = "aten::_scaled_dot_product_"
# What they are given says all of their result.
_EXPLICIT = frozenset({"aten::as_strided", "aten::as_strided_", "aten::set_"})


class KernelLayouts(FakeTensorMode):
    """The fake tensors of a trace.

    Args:
        unused: of a trace with symbols, the strides that no element shows.
        environment: the ShapeEnv of these symbols.
    """

    def __init__(self, unused: UnusedStrides | None = None, environment: Any = None) -> None:
        # As for an export: else fakes of integers on the CPU would answer `item()`.
        super().__init__(allow_non_fake_inputs=True, shape_env=environment, export=True)
        self._unused = unused
        self._inside = False
        # Results that may not be like the kernel's, each with what is raised once it is used.
        self._unlike_kernel = WeakIdKeyDictionary()

    def let_go_of_tensors(self) -> None:
        """Drops the weak references to real tensors: with such a one, none can be swapped."""
        describer = self.fake_tensor_converter.meta_converter.describer
        describer.lookup_tensor.clear()
        describer.lookup_storage.clear()

    def dispatch(
        self,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Runs an operator on fake tensors; what it is made of is not looked at."""
        args, kwargs = restored(func, args, kwargs or {})
        if self._inside:
            return super().dispatch(func, types, args, kwargs)
        if self._unlike_kernel:
            self.refuse_unlike_kernel((args, kwargs))
        check_index(func, args)
        if self.shape_env is not None and func in DESCRIBED_IN_PYTHON:
            with enable_python_dispatcher():
                return self._dispatch(func, types, args, kwargs)
        return self._dispatch(func, types, args, kwargs)

    def _dispatch(
        self, func: Any, types: Sequence[type], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        self._inside = True
        try:
            if not isinstance(func, torch._ops.OpOverload) or not _can_be_tried(func):
                return super().dispatch(func, types, args, kwargs)
            given: Any = (args, kwargs)
            if func._schema.is_mutable:
                given = pytree.tree_map_only(torch.Tensor, Given, given)
            result = super().dispatch(func, types, args, kwargs)
            if _may_leave_undefined(func):
                result = self._without_undefined(func, given[0], given[1], result)
            self._settle(func, given[0], given[1], result)
            return result
        finally:
            self._inside = False

    def _without_undefined(
        self, func: torch._ops.OpOverload, args: Any, kwargs: Mapping[str, Any], result: Any
    ) -> Any:
        """The results, with None for those that the kernel leaves undefined.

        Where it cannot be tried, those behind the first may not be used.
        """
        try:
            found = layouts_of_kernel(func, args, kwargs, Assignment({}))
        except UnsupportedError as error:
            found = error.reason
        if isinstance(found, str):
            for each in dense_in(result[1:]):
                self._unlike_kernel[each] = UnsupportedError(
                    f"{func} may leave one of its results undefined, which is only known once it "
                    f"runs (tried out on zeros, it raises {found})"
                )
            return result
        return tuple(None if f is None else each for f, each in zip(found, result, strict=True))

    def _settle(
        self, func: torch._ops.OpOverload, args: Any, kwargs: Mapping[str, Any], result: Any
    ) -> None:
        """Gives the results the kernel's strides.

        Raises:
            UnsupportedError: if strides that elements show differ, or the kernel cannot be tried.
        """
        results = dense_in(result)
        if not results:
            return
        given = dense_in((args, kwargs))
        if all(_is_contiguous(each) for each in given):
            return
        shows_all = not any(unused_axes(each.shape) for each in (*given, *results))
        if shows_all and not _is_doubtful(func):
            return
        if func._schema.name in _CONTIGUOUS and not any(is_empty(r.shape) for r in results):
            return
        among_symbols = any(
            isinstance(each, torch.SymInt)
            for value in (*given, *results)
            for each in (*value.shape, *value.stride())
        )
        runs: list[list[tuple[Layout | None, Layout]]] = []
        for assignment in self._assignments(given):
            found = layouts_of_kernel(func, args, kwargs, assignment)
            if isinstance(found, str):
                if assignment.scaled:
                    continue  # sizes that belong together need not be multiples alike
                raise _unknown_layout(func, f"tried out, it raises {found}")
            expected = layouts_in(result, assignment)
            if len(found) != len(expected):
                raise _unknown_layout(func, f"{len(found)} results, not {len(expected)}")
            runs.append([(f, e) for f, e in zip(found, expected, strict=True) if e is not None])
        for each, layouts in zip(results, zip(*runs, strict=True), strict=True):
            agreeing = [(f, e) for f, e in layouts if f is not None and _agree(f, e, among_symbols)]
            if len(agreeing) == len(layouts):
                self._correct(each, [(f.strides, e.strides) for f, e in agreeing])
            elif each is not results[0] and func._schema.name.startswith(_ATTENTION):
                self._unlike_kernel[each] = _unknown_layout(func, "one of its results is used")
            else:
                raise _unknown_layout(func, f"of {[f for f, _ in layouts]}")

    def refuse_unlike_kernel(self, values: Any) -> None:
        """Refuses tensors of which no more is known than that a kernel makes them.

        Raises:
            UnsupportedError: one is among the values.
        """
        for each in dense_in(values):
            if each in self._unlike_kernel:
                raise self._unlike_kernel[each]

    def _assignments(self, given: Sequence[Any]) -> Iterator[Assignment]:
        """What the symbols among an operator's inputs may stand for."""
        yield Assignment({})
        if self._unused is not None:
            yield from self._unused.assignments(given)

    def _correct(self, result: torch.Tensor, runs: Sequence[tuple[Any, Any]]) -> None:
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
def _may_leave_undefined(func: torch._ops.OpOverload) -> bool:
    """Whether some of an operator's results may be undefined though its fakes are not.

    PyTorch's core operators have no such results.
    """
    fresh = [each for each in func._schema.returns if each.alias_info is None]
    return (
        len(fresh) == len(func._schema.returns) > 1
        and all(str(each.type) == "Tensor" for each in fresh)
        and torch.Tag.core not in func.tags
    )


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


def _agree(found: Layout, expected: Layout, strides_too: bool) -> bool:
    """Whether layouts are the same but for strides: all, or those that no element shows."""
    return (found.sizes, found.dtype, found.device) == (
        expected.sizes,
        expected.dtype,
        expected.device,
    ) and (not strides_too or found.shown_strides() == expected.shown_strides())


def _unknown_layout(func: torch._ops.OpOverload, why: str) -> UnsupportedError:
    return UnsupportedError(
        f"{func} lays its result out in a way that is only known once it runs, for an input that "
        f"is not contiguous; give it x.contiguous() ({why})"
    )
