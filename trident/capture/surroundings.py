"""What surrounds a trace, so that PyTorch and the user's code run in it as they do in eager."""

from __future__ import annotations

import contextlib
import linecache
import logging
from collections.abc import Iterator
from typing import Any

import torch
from torch.fx import _symbolic_trace
from torch.nn.utils import parametrize
from torch.overrides import _pop_mode_temporarily

from trident import _C
from trident.capture.comparisons import comparisons_are_bools
from trident.capture.disguise import symbolic_numbers_pass_for_numbers
from trident.capture.indexing import indices_vary
from trident.capture.other_numbers import other_numbers_keep_their_classes
from trident.capture.symbolic_builtins import symbolic_arithmetic
from trident.capture.symbolic_operators import bytes_vary, decomposed_with_symbols
from trident.errors import UnsupportedError

_OF_MODULES = {
    "__call__": _symbolic_trace._orig_module_call,
    "__getattr__": _symbolic_trace._orig_module_getattr,
}
_fake_tensor_log = logging.getLogger("torch._subclasses.fake_tensor")


@contextlib.contextmanager
def unseen_trace() -> Iterator[None]:
    """Keeps PyTorch's own Python code from taking other paths than in eager because it is traced.

    `make_fx` pushes a function mode for annotations that Trident does not use, which makes
    `has_torch_function` true; attention modules ask whether `make_fx` runs.
    """
    module = torch.nn.modules.activation
    asked = module._is_make_fx_tracing
    module._is_make_fx_tracing = lambda: False
    try:
        with _pop_mode_temporarily():
            yield
    finally:
        module._is_make_fx_tracing = asked


def check_surroundings() -> None:
    """Refuses what `make_fx` passes over, or would leave behind.

    Raises:
        UnsupportedError: somebody has replaced a method of modules, of which it has PyTorch's own
            at hand; or PyTorch keeps parametrized weights, which would be those of the trace.
    """
    if parametrize._cache_enabled:
        raise UnsupportedError(
            "torch.nn.utils.parametrize.cached is active",
            places=[(vars(parametrize), "_cache_enabled")],
        )
    for name, own in _OF_MODULES.items():
        if vars(torch.nn.Module)[name] is not own:
            raise UnsupportedError(f"torch.nn.Module.{name} has been replaced")


@contextlib.contextmanager
def unseen_by_other_threads() -> Iterator[None]:
    """Keeps what a trace puts into torch.Tensor from being a fact of calls in other threads."""
    _C.hold_tensor_classes(True)
    try:
        yield
    finally:
        _C.hold_tensor_classes(False)


@contextlib.contextmanager
def symbolic_trace() -> Iterator[list[Exception]]:
    """What a trace over symbols needs."""
    with (
        symbolic_numbers_pass_for_numbers() as refused,
        symbolic_arithmetic() as raised,
        other_numbers_keep_their_classes(),
        comparisons_are_bools(),
        decomposed_with_symbols(),
        indices_vary(),
        bytes_vary(),
    ):
        yield refused
        refused += raised


@contextlib.contextmanager
def unreported() -> Iterator[None]:
    """Keeps PyTorch from logging that a trace fails: eager, which runs then, says why."""
    level = _fake_tensor_log.level
    _fake_tensor_log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        _fake_tensor_log.setLevel(level)


@contextlib.contextmanager
def grad_mode_of_caller() -> Iterator[None]:
    """Leaves inference mode, whose tensors cannot be traced, and keeps the caller's grad mode.

    Leaving inference mode turns gradients on, which would make PyTorch choose other operators.
    """
    enabled = torch.is_grad_enabled()
    with torch.inference_mode(mode=False), torch.set_grad_enabled(enabled):
        yield


def forget_source(graph_module: torch.fx.GraphModule) -> None:
    """Drops the text of the graph's own Python code, which PyTorch keeps for every trace."""
    loader: Any = getattr(torch.fx.graph_module, "_loader", None)
    name = type(graph_module).forward.__code__.co_filename
    if name in getattr(loader, "eval_cache", ()):
        del loader.eval_cache[name]
        linecache.cache.pop(name, None)
