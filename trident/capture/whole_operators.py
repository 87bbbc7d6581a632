"""Composite operators that stay one operator each, since they look at values only in eager.

PyTorch makes them of others before a trace sees them, and some, such as `one_hot`, leave their
checks of values out where a tensor is fake. While a call is captured, their functions and methods
are diverted to operators of Trident's own, in whose place the graph then has PyTorch's. So the
program calls the composite kernel, which sees what eager's sees, and raises the same error.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.fx
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor

from trident import _C
from trident.errors import UnsupportedError
from trident.ir.launch_op import LIBRARY

_TENSORS = (FakeTensor, torch.Tensor, torch.nn.Parameter)

_aten = torch.ops.aten
LIBRARY.define("one_hot(Tensor self, SymInt num_classes=-1) -> Tensor")
for _name in ("quantile", "nanquantile"):
    LIBRARY.define(str(getattr(_aten, _name).default._schema).removeprefix("aten::"))
_trident = torch.ops.trident
_WHOLE: dict[OpOverload, OpOverload] = {
    getattr(_trident, name).default: getattr(_aten, name).default
    for name in ("one_hot", "quantile", "nanquantile")
}


class _Active(threading.local):
    """Whether a call is captured in this thread, outside of the fake implementations."""

    on = False


_active = _Active()


@contextlib.contextmanager
def _turned(on: bool) -> Iterator[None]:
    before, _active.on = _active.on, on
    try:
        yield
    finally:
        _active.on = before


@torch.library.register_fake("trident::one_hot", lib=LIBRARY)
def _one_hot_of_fakes(x: torch.Tensor, num_classes: Any = -1) -> torch.Tensor:
    if num_classes < 1:
        raise UnsupportedError("the call uses one_hot without a number of classes")
    return x.new_empty((*x.shape, num_classes))


def _decomposed(operator: OpOverload) -> Callable[..., torch.Tensor]:
    def fake(*args: Any, **kwargs: Any) -> torch.Tensor:
        with _turned(False):
            result: torch.Tensor = operator(*args, **kwargs)
            return result

    return fake


for _name in ("quantile", "nanquantile"):
    torch.library.register_fake(
        f"trident::{_name}", _decomposed(getattr(_aten, _name).default), lib=LIBRARY
    )


def _one_hot(input: torch.Tensor, num_classes: Any = -1) -> Any:
    return _trident.one_hot(input, num_classes)


def _quantile(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    """What `quantile`, or `nanquantile`, is in a trace."""
    whole = getattr(_trident, name)

    def quantile(input: Any, q: Any, dim: Any = None, keepdim: Any = False, **options: Any) -> Any:
        if not isinstance(q, torch.Tensor):  # what is checked of a number does not vanish
            return original(input, q, dim, keepdim, **options)
        if options.pop("out", None) is not None:
            raise UnsupportedError(f"the call uses {name} with out=")
        if torch.is_grad_enabled() and (input.requires_grad or q.requires_grad):
            raise UnsupportedError(f"the call uses {name} with gradients")
        return whole(input, q, dim, keepdim, **options)

    return quantile


@contextlib.contextmanager
def whole_operators() -> Iterator[None]:
    """Keeps the operators whole in this thread's trace. One capture at a time."""
    diversion = _C.Diversion()

    def divert(function: Any, make: Callable[[Any], Callable[..., Any]]) -> None:
        def chosen(*args: Any, **kwargs: Any) -> Any:
            return _chosen(original, make(original))(*args, **kwargs)

        original = diversion.divert(function, _TENSORS, chosen)

    with contextlib.ExitStack() as stack:
        stack.callback(diversion.end)
        for function in (torch.nn.functional.one_hot, *_calls_of(_aten.one_hot)):
            divert(function, lambda original: _one_hot)
        for name in ("quantile", "nanquantile"):
            make = functools.partial(_quantile, name)
            for function in (getattr(torch, name), *_calls_of(getattr(_aten, name))):
                divert(function, make)
            method = getattr(torch.Tensor, name)
            stack.callback(delattr, torch.Tensor, name)
            setattr(torch.Tensor, name, _chosen(method, make(method)))
        with _turned(True):
            yield


def _calls_of(packet: Any) -> tuple[Any, ...]:
    """What ``torch.ops.aten.name`` and its overload call."""
    return packet._op, packet.default._op


def _chosen(original: Callable[..., Any], answer: Callable[..., Any]) -> Callable[..., Any]:
    def chosen(*args: Any, **kwargs: Any) -> Any:
        return (answer if _active.on else original)(*args, **kwargs)

    return chosen


def restore_operators(graph: torch.fx.Graph) -> None:
    """Puts PyTorch's operators in the place of Trident's."""
    for node in graph.nodes:
        if node.op == "call_function":
            node.target = _WHOLE.get(node.target, node.target)
