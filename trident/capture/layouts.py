"""Whether operators lay their results out as their descriptions say.

A trace knows sizes and strides from PyTorch's fake tensors. For some operators these differ from
what the kernel of the device does, where an input is not contiguous: `group_norm` keeps the order
of a channels-last input on the CPU, say. A program computes views from the strides of the trace, so
such an operator is run once, on zeros of the same geometry, before it is believed.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes

from trident.errors import UnsupportedError

# Their results follow from the strides of their inputs in one way, written once in PyTorch.
_TRUSTED = frozenset(
    {
        *("aten::mm", "aten::bmm", "aten::addmm", "aten::baddbmm", "aten::clone", "aten::_to_copy"),
        *("aten::sum", "aten::mean", "aten::amax", "aten::amin", "aten::argmax", "aten::cumsum"),
        *("aten::embedding", "aten::index", "aten::index_select", "aten::gather"),
    }
)
_MAX_KNOWN = 4096
_known: dict[Any, bool] = {}


def check_layout(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
    """Refuses an operator whose kernel gives another layout than the trace's tensors have.

    Args:
        func: the operator that ran on fake tensors.
        args, kwargs: what it was given.
        result: what it returned.

    Raises:
        UnsupportedError: if the kernel's strides differ (those of extents of 1 do not count), or if
            the kernel cannot be tried.
    """
    if not isinstance(func, torch._ops.OpOverload) or not _doubtful(func):
        return
    given = [each for each in pytree.tree_leaves((args, kwargs)) if _is_dense(each)]
    if all(_is_contiguous(each) for each in given):
        return
    expected = [_geometry(each) for each in pytree.tree_leaves(result) if _is_dense(each)]
    key = (func, _frozen(args), _frozen(kwargs), tuple(expected))
    agrees = _known.get(key)
    if agrees is None:
        if len(_known) >= _MAX_KNOWN:
            _known.clear()
        agrees = _known[key] = _run_on_zeros(func, args, kwargs) == expected
    if not agrees:
        raise UnsupportedError(
            f"{func} lays its result out in a way that is only known once it runs, for an input "
            "that is not contiguous; give it x.contiguous()"
        )


def _doubtful(func: torch._ops.OpOverload) -> bool:
    schema = func._schema
    return (
        func.namespace == "aten"
        and schema.name not in _TRUSTED
        and torch.Tag.pointwise not in func.tags
        and torch.Tag.nondeterministic_seeded not in func.tags
        and torch.Tag.data_dependent_output not in func.tags
        and torch.Tag.dynamic_output_shape not in func.tags
        and all(argument.alias_info is None for argument in schema.arguments)
    )


def _is_dense(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.layout == torch.strided


def _number(value: Any) -> Any:
    """What a symbol stands for in this call; asking for it is no guard."""
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return value.node.hint
    return value


def _geometry(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Sizes, and the strides that matter."""
    sizes = [_number(size) for size in tensor.shape]
    strides = [_number(stride) for stride in tensor.stride()]
    if 0 in sizes:
        strides = [0] * len(sizes)
    matter = (stride if size != 1 else 0 for size, stride in zip(sizes, strides, strict=True))
    return tuple(sizes), tuple(matter), tensor.dtype, tensor.device.type


def _is_contiguous(tensor: torch.Tensor) -> bool:
    expected = 1
    sizes, strides, _, _ = _geometry(tensor)
    for size, stride in zip(reversed(sizes), reversed(strides), strict=True):
        if size != 1 and stride != expected:
            return 0 in sizes
        expected *= size
    return True


def _frozen(value: Any) -> Any:
    """A hashable description of an operator's arguments."""
    if isinstance(value, torch.Tensor):
        return _geometry(value)
    if isinstance(value, (list, tuple)):
        return tuple(_frozen(each) for each in value)
    if isinstance(value, dict):
        return tuple((name, _frozen(each)) for name, each in value.items())
    return type(value).__name__, str(_number(value))


def _run_on_zeros(
    func: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> list[tuple[Any, ...]] | None:
    """The geometry of the kernel's results; None if it raises."""

    def real(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return _number(value)
        sizes = [_number(size) for size in value.shape]
        strides = [_number(stride) for stride in value.stride()]
        made = torch.empty_strided(sizes, strides, dtype=value.dtype, device=value.device)
        return made.zero_()

    with (
        _disable_current_modes(),
        torch.no_grad(),
        torch._C._AutoDispatchBelowAutograd(),
    ):
        try:
            given, named = pytree.tree_map(real, (args, kwargs))
            result = func(*given, **named)
        except Exception:
            return None
    return [_geometry(each) for each in pytree.tree_leaves(result) if _is_dense(each)]
