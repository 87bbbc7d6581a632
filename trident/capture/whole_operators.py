"""Composite operators that stay one operator each, since they look at values only in eager.

PyTorch makes them of others before a trace sees them, and some, such as `one_hot`, leave their
checks of values out where a tensor is fake; those that need singular values or eigenvalues alone
compute the vectors, too, which gives other last bits. While a call is captured, their functions and
methods are diverted to operators of Trident's own, in whose place the graph then has PyTorch's. So
the program calls the composite kernel, which sees what eager's sees, and raises the same error.
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
_QUANTILES = [_aten.quantile.default, _aten.nanquantile.default]
_SPECTRA = [
    *(_aten.linalg_svdvals.default, _aten.linalg_eigvalsh.default, _aten.svd.default),
    *(_aten.linalg_cond.default, _aten.linalg_cond.p_str),
    *(_aten.linalg_norm.default, _aten.linalg_norm.ord_str),
    *(_aten.linalg_matrix_norm.default, _aten.linalg_matrix_norm.str_ord),
    *(_aten.nuclear_norm.default, _aten.nuclear_norm.dim),
]
for _operator in (*_QUANTILES, *_SPECTRA):
    LIBRARY.define(str(_operator._schema).removeprefix("aten::"))
_trident = torch.ops.trident


def _own(operator: OpOverload) -> OpOverload:
    """Trident's operator that stands for one of PyTorch's."""
    packet = getattr(_trident, operator._schema.name.removeprefix("aten::"))
    overload: OpOverload = getattr(packet, operator._schema.overload_name or "default")
    return overload


_WHOLE: dict[OpOverload, OpOverload] = {
    _own(operator): operator for operator in (_aten.one_hot.default, *_QUANTILES, *_SPECTRA)
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


for _operator in (*_QUANTILES, *_SPECTRA):
    torch.library.register_fake(_own(_operator)._name, _decomposed(_operator), lib=LIBRARY)


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


def _takes_matrix(input: torch.Tensor, dim: Any) -> bool:
    return input.dim() == 2 if dim is None else isinstance(dim, (tuple, list)) and len(dim) == 2


def _norm(A: torch.Tensor, ord: Any = None, dim: Any = None, *args: Any, **options: Any) -> bool:
    return ord in (2, -2, "nuc") and _takes_matrix(A, dim)


# Which calls of a function come to singular values or eigenvalues.
_TAKES_SPECTRUM: dict[str, Callable[..., bool]] = {
    "linalg_svdvals": lambda *args, **options: True,
    "linalg_eigvalsh": lambda *args, **options: True,
    "svd": lambda input, some=True, compute_uv=True, **options: not compute_uv,
    "linalg_cond": lambda A, p=None, **options: p in (None, 2, -2, "nuc"),
    "linalg_norm": _norm,
    "linalg_matrix_norm": lambda A, ord="fro", *args, **options: ord in (2, -2, "nuc"),
    "nuclear_norm": lambda *args, **options: True,
}


def _spectrum(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    """What a function that may need a spectrum alone is in a trace."""

    def spectrum(*args: Any, **options: Any) -> Any:
        if not _TAKES_SPECTRUM[name](*args, **options):
            return original(*args, **options)
        if options.pop("out", None) is not None:
            raise UnsupportedError(f"the call uses {name} with out=")
        tensors = [each for each in (*args, *options.values()) if isinstance(each, torch.Tensor)]
        if torch.is_grad_enabled() and any(each.requires_grad for each in tensors):
            return original(*args, **options)  # eager computes the vectors, too
        result = getattr(_trident, name)(*args, **_named(name, options))
        return torch.return_types.svd(result) if name == "svd" else result

    return spectrum


def _named(name: str, options: dict[str, Any]) -> dict[str, Any]:
    """Keyword arguments as the schemas call them: functions call the first one A, or input."""
    first = getattr(_aten, name).default._schema.arguments[0].name
    return {first if key in ("A", "input") else key: each for key, each in options.items()}


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
            _divert_method(name, make, stack)
        for name in _TAKES_SPECTRUM:
            make = functools.partial(_spectrum, name)
            home = torch.linalg if name.startswith("linalg_") else torch
            for function in (
                getattr(home, name.removeprefix("linalg_")),
                *_calls_of(getattr(_aten, name)),
            ):
                divert(function, make)
        _divert_method("svd", functools.partial(_spectrum, "svd"), stack)
        with _turned(True):
            yield


def _divert_method(
    name: str, make: Callable[[Any], Callable[..., Any]], stack: contextlib.ExitStack
) -> None:
    method = getattr(torch.Tensor, name)
    stack.callback(delattr, torch.Tensor, name)
    setattr(torch.Tensor, name, _chosen(method, make(method)))


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
