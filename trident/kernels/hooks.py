"""Hooks and debugging aids that only Triton's own launcher serves, and where they show."""

from __future__ import annotations

import os
from typing import Any

from triton import knobs

from trident.errors import UnsupportedError

_HOOKS = (
    "launch_enter_hook",
    "launch_exit_hook",
    "kernel_load_start_hook",
    "kernel_load_end_hook",
    "jit_cache_hook",
    "jit_post_compile_hook",
    "add_stages_inspection_hook",
)

Place = tuple[dict[Any, Any], Any]
"""A dictionary and a key in it, whose value decides how Triton launches."""


class LeftToTriton(UnsupportedError):
    """A launch that hooks or debugging aids leave to Triton's launcher while they are set."""


def check_hooks(kernel: Any, where: str) -> None:
    """Refuses a launch that Triton's launcher alone serves.

    Raises:
        LeftToTriton: with the names of what is set.
    """
    present = [name for name in _HOOKS if _is_set(getattr(knobs.runtime, name, None))]
    if knobs.runtime.debug:
        present.append("debug")
    if knobs.compilation.instrumentation_mode:
        present.append("instrumentation_mode")
    if kernel.pre_run_hooks:
        present.append("pre_run_hooks")
    if present:
        name = getattr(kernel, "__name__", "?")
        reason = f"launch of {name} is left to Triton: {', '.join(present)} set"
        raise LeftToTriton(reason, where, hook_places(kernel))


def hook_places(kernel: Any) -> list[Place]:
    """Where a hook would show that is set for all kernels or for this one."""
    places: list[Place] = []
    for owner, name in ((knobs.compilation, "instrumentation_mode"), (knobs.runtime, "debug")):
        places.append((vars(owner), name))
        variable = getattr(vars(type(owner)).get(name), "key", None)
        if isinstance(variable, str):  # up to Triton 3.6 each launch asks the environment
            environment: Any = os.environ
            places.append((environment._data, environment.encodekey(variable)))
    for name in _HOOKS:
        places.append((vars(knobs.runtime), name))
        chain = getattr(knobs.runtime, name, None)
        if hasattr(chain, "calls"):
            places.append((vars(chain), "calls"))
    if "pre_run_hooks" in vars(kernel):
        places.append((vars(kernel), "pre_run_hooks"))
    return places


def _is_set(hook: Any) -> bool:
    if hook is None:
        return False
    calls = getattr(hook, "calls", None)  # a chain of hooks is always there and may be empty
    return True if calls is None else bool(calls)
