"""Routing: while active in a thread, kernel launches go to a handler instead of running."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch
from triton import knobs
from triton.compiler.compiler import CompiledKernel
from triton.runtime.autotuner import Autotuner
from triton.runtime.interpreter import InterpretedFunction
from triton.runtime.jit import JITFunction

from trident.errors import NotReadyError, UnsupportedError
from trident.kernels import flag_gems
from trident.kernels.functions import check_expressible
from trident.kernels.launch import launched_from, user_place

Handler = Callable[[Any, tuple[Any, ...], dict[str, Any], Any], Any]
"""Called as ``handler(kernel, args, kwargs, grid)``; its result is the launch's."""


class NeedsTuning(NotReadyError):
    """An autotuned kernel has no winner for these arguments yet; one eager call finds it."""


class _Active(threading.local):
    def __init__(self) -> None:
        self.handlers: list[Handler] = []


_active = _Active()
_install_lock = threading.Lock()
_users = 0
_originals: dict[type, tuple[str, Any, Any]] = {}


@contextlib.contextmanager
def route_launches(handler: Handler) -> Iterator[None]:
    """Sends every launch of this thread to `handler`; other threads launch as ever. May be nested.

    Covers `kernel[grid](...)` and `kernel.run(grid=..., warmup=False)`, plain and under heuristics
    and autotuners, whose own Python runs. Launches with ``warmup=True`` go to Triton.

    Raises, at the launch:
        NeedsTuning: an autotuner would have to benchmark.
        UnsupportedError: hooks or debugging aids are set that only Triton's launcher serves.
    """
    _install()
    _active.handlers.append(handler)
    try:
        yield
    finally:
        _active.handlers.pop()
        _uninstall()


def _install() -> None:
    global _users
    with _install_lock:
        _users += 1
        if _users > 1:
            return
        for owner, name, make in (
            (JITFunction, "run", _routed_run),
            (InterpretedFunction, "run", _routed_run),
            *((tuner, "run", _routed_autotuner_run) for tuner in _tuners(Autotuner)),
            *flag_gems.patches(_is_routing),
            (CompiledKernel, "__getitem__", _routed_compiled_kernel),
        ):
            # Somebody may have wrapped ours meanwhile and kept it installed: then it still serves.
            if owner in _originals:
                continue
            original = getattr(owner, name)
            replacement = make(original)
            _originals[owner] = (name, original, replacement)
            setattr(owner, name, replacement)


def _is_routing() -> bool:
    return bool(_active.handlers)


def _tuners(kind: type[Autotuner]) -> Iterator[type[Autotuner]]:
    """An autotuner's class and its subclasses, those with a `run` of their own."""
    if "run" in vars(kind):
        yield kind
    subclasses: list[type[Autotuner]] = kind.__subclasses__()
    for subclass in subclasses:
        yield from _tuners(subclass)


def _uninstall() -> None:
    global _users
    with _install_lock:
        _users -= 1
        if _users:
            return
        for owner, (name, original, replacement) in list(_originals.items()):
            if getattr(owner, name) is replacement:
                setattr(owner, name, original)
                del _originals[owner]


def _routed_run(original: Callable[..., Any]) -> Callable[..., Any]:
    def run(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        if warmup or not _active.handlers:
            return original(self, *args, grid=grid, warmup=warmup, **kwargs)
        check_expressible(self)
        _check_hooks(self)
        with launched_from(user_place()):
            return _active.handlers[-1](self, args, kwargs, grid)

    return run


def _routed_compiled_kernel(original: Callable[..., Any]) -> Callable[..., Any]:
    def __getitem__(self: Any, grid: Any) -> Any:
        if _active.handlers:
            raise UnsupportedError(
                f"launch of the compiled kernel {self.name} itself, past its @triton.jit function",
                user_place(),
            )
        return original(self, grid)

    return __getitem__


def _routed_autotuner_run(original: Callable[..., Any]) -> Callable[..., Any]:
    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not _active.handlers or kwargs.get("warmup"):
            return original(self, *args, **kwargs)
        # The winner depends on these: sizes among them are fixed, which the trace guards.
        args = tuple(
            _fixed(value) if name in self.keys else value
            for name, value in zip(self.arg_names, args, strict=False)
        ) + tuple(args[len(self.arg_names) :])
        kwargs = {
            name: _fixed(value) if name in self.keys else value for name, value in kwargs.items()
        }
        cache = self.cache
        try:
            if len(self.configs) > 1:
                if not isinstance(cache, dict):
                    self.cache = flag_gems.stored_winner(cache, tuning_key(self, args, kwargs))
                _require_winner(self, args, kwargs)
            return original(self, *args, **kwargs)
        finally:
            self.cache = cache
            self.nargs = None  # after an error Triton would keep the trace's tensors here

    return run


def _fixed(value: Any) -> Any:
    return int(value) if isinstance(value, torch.SymInt) else value


def _require_winner(tuner: Autotuner, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raises NeedsTuning unless the winner is known, or pruning leaves one configuration only."""
    key = tuning_key(tuner, args, kwargs)
    if key in tuner.cache:
        return
    tuner.nargs = dict(zip(tuner.arg_names, args, strict=False))
    try:
        candidates = tuner.prune_configs(kwargs)
    except Exception:
        # The user's function may need the tensors' values; eagerly it gets them, and may fail.
        candidates = []
    if len(candidates) != 1:
        raise NeedsTuning(
            f"kernel {tuner.base_fn.__name__} is not autotuned for these arguments yet",
            user_place(),
        )
    tuner.cache[key] = candidates[0]


def tuning_key(
    tuner: Autotuner, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[object, ...]:
    """The key under which an autotuner remembers its winner for these arguments of a launch."""
    given = {**dict(zip(tuner.arg_names, args, strict=False)), **kwargs}
    known = {name: value for name, value in given.items() if name in tuner.arg_names}
    if hasattr(tuner, "get_key"):  # a subclass that forms keys of its own, as FlagGems' does
        own: tuple[object, ...] = tuner.get_key(known)
        return own
    values = [known[name] for name in tuner.keys if name in known]
    dtypes = [str(value.dtype) for value in known.values() if hasattr(value, "dtype")]
    return (*values, *dtypes)


def _check_hooks(kernel: Any) -> None:
    """Refuses what is served by Triton's launcher alone."""
    runtime = knobs.runtime
    present = [
        name
        for name in (
            "launch_enter_hook",
            "launch_exit_hook",
            "kernel_load_start_hook",
            "kernel_load_end_hook",
            "jit_cache_hook",
            "jit_post_compile_hook",
            "add_stages_inspection_hook",
        )
        if _is_set(getattr(runtime, name, None))
    ]
    if runtime.debug:
        present.append("debug")
    if knobs.compilation.instrumentation_mode:
        present.append("instrumentation_mode")
    if kernel.pre_run_hooks:
        present.append("pre_run_hooks")
    if present:
        name = getattr(kernel, "__name__", "?")
        raise UnsupportedError(
            f"launch of {name} is left to Triton: {', '.join(present)} set", user_place()
        )


def _is_set(hook: Any) -> bool:
    if hook is None:
        return False
    calls = getattr(hook, "calls", None)  # a chain of hooks is always there and may be empty
    return True if calls is None else bool(calls)
