"""Routing: while active in a thread, kernel launches go to a handler instead of running."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

from triton.compiler.compiler import CompiledKernel
from triton.runtime.autotuner import Autotuner, Heuristics
from triton.runtime.interpreter import InterpretedFunction
from triton.runtime.jit import JITFunction

from trident import aside
from trident.errors import UnsupportedError
from trident.kernels import flag_gems, helion
from trident.kernels.compiled import launch_of, warmup_argument
from trident.kernels.functions import check_expressible
from trident.kernels.hooks import Place, check_hooks
from trident.kernels.launch import launched_from, user_place
from trident.kernels.tuning import NeedsTuning, autotuner_classes, launch_tuned

Handler = Callable[[Any, tuple[Any, ...], dict[str, Any], Any], Any]
"""Called as ``handler(kernel, args, kwargs, grid)``; its result is the launch's."""


class Routed:
    """What launches of a thread go through.

    Attributes:
        places: what a change of an autotuner's winner or of heuristics would show in; of launches
            so far.
    """

    def __init__(self, handler: Handler, is_aligned: Callable[[Any], bool]) -> None:
        self.handler = handler
        self.places: list[Place] = []
        self._is_aligned = is_aligned

    def warmup_argument(self, value: Any) -> Any:
        return warmup_argument(value, self._is_aligned)


class _Active(threading.local):
    def __init__(self) -> None:
        self.routes: list[Routed] = []


_active = _Active()
_install_lock = threading.Lock()
_users = 0
_originals: dict[tuple[Any, str], tuple[Any, Any]] = {}


@contextlib.contextmanager
def route_launches(
    handler: Handler, is_aligned: Callable[[Any], bool] = lambda tensor: True
) -> Iterator[Routed]:
    """Sends every launch of this thread to `handler`; other threads launch as ever. May be nested.

    Covers `kernel[grid](...)` and `kernel.run(grid=..., warmup=False)`, plain and under heuristics
    and autotuners, whose own Python runs, FlagGems' layers, calls of Helion's kernel objects, and
    kernels that `warmup` compiled.
    Launches with ``warmup=True`` go to Triton, which sees of tensors what `is_aligned` says.

    Raises, at the launch:
        NeedsTuning: an autotuner would have to benchmark.
        UnsupportedError: hooks or debugging aids are set that only Triton's launcher serves.
    """
    _install()
    route = Routed(handler, is_aligned)
    _active.routes.append(route)
    try:
        yield route
    finally:
        _active.routes.pop()
        _uninstall()


def _replacements() -> Iterator[tuple[Any, str, Callable[[Any], Any]]]:
    yield JITFunction, "run", _routed_run
    yield InterpretedFunction, "run", _routed_run
    yield CompiledKernel, "__getitem__", _routed_compiled_kernel
    yield Autotuner, "_bench", _routed_benchmark
    yield Heuristics, "run", _routed_heuristics_run
    for owner in autotuner_classes():
        yield owner, "run", _routed_autotuner_run
    yield from flag_gems.patches(_is_routing)
    yield from helion.patches(_is_routing, _note_places)


def _is_routing() -> bool:
    return bool(_active.routes)


def _note_places(places: list[Place]) -> None:
    _active.routes[-1].places += places


def prepare_routing() -> None:
    """Does what `route_launches` needs and a trace must not do; call it before the trace."""
    aside.prepare()


def _install() -> None:
    global _users
    with _install_lock:
        _users += 1
        if _users > 1:
            return
        for owner, name, make in _replacements():
            # Somebody may have wrapped ours meanwhile and kept it installed: then it still serves.
            if (owner, name) in _originals:
                continue
            original = getattr(owner, name)
            replacement = make(original)
            _originals[owner, name] = (original, replacement)
            setattr(owner, name, replacement)


def _uninstall() -> None:
    global _users
    with _install_lock:
        _users -= 1
        if _users:
            return
        for (owner, name), (original, replacement) in list(_originals.items()):
            if getattr(owner, name) is replacement:
                setattr(owner, name, original)
                del _originals[owner, name]


def _routed_run(original: Callable[..., Any]) -> Callable[..., Any]:
    def run(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        if not _active.routes:
            return original(self, *args, grid=grid, warmup=warmup, **kwargs)
        if warmup:
            known = _active.routes[-1].warmup_argument
            return original(
                self,
                *(known(value) for value in args),
                grid=grid,
                warmup=True,
                **{name: known(value) for name, value in kwargs.items()},
            )
        check_expressible(self)
        where = user_place()
        check_hooks(self, where)
        with launched_from(where):
            return _active.routes[-1].handler(self, args, kwargs, grid)

    return run


def _routed_compiled_kernel(original: Callable[..., Any]) -> Callable[..., Any]:
    def __getitem__(self: Any, grid: Any) -> Any:
        if not _active.routes:
            return original(self, grid)

        def launch(*args: Any, stream: Any = None) -> Any:
            where = user_place()
            if stream is not None:
                raise UnsupportedError(f"launch of {self.name} on a stream that it is given", where)
            kernel, arguments = launch_of(self, args, where)
            return kernel.run(grid=grid, warmup=False, **arguments)

        return launch

    return __getitem__


def _routed_autotuner_run(original: Callable[..., Any]) -> Callable[..., Any]:
    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not _active.routes or kwargs.get("warmup"):
            return original(self, *args, **kwargs)
        result, places = launch_tuned(self, original, args, kwargs, user_place())
        _note_places(places)
        return result

    return run


def _routed_heuristics_run(original: Callable[..., Any]) -> Callable[..., Any]:
    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        if _active.routes:
            _note_places([(vars(self), "values"), (vars(self), "fn")])
        return original(self, *args, **kwargs)

    return run


def _routed_benchmark(original: Callable[..., Any]) -> Callable[..., Any]:
    def _bench(self: Any, *args: Any, config: Any, **kwargs: Any) -> Any:
        if _active.routes:
            raise NeedsTuning(self, args, kwargs, user_place())
        return original(self, *args, config=config, **kwargs)

    return _bench
