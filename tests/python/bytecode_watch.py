"""Notes the Python code that runs while something is called."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import Any

CODE_EVENTS = ("PY_START", "PY_RESUME", "PY_THROW")


def python_events(call: Callable[..., Any], *args: Any, **kwargs: Any) -> tuple[Any, list[str]]:
    """Calls, and returns the result with what profiler, tracer and monitoring saw, in words.

    The list is empty if nothing but native code ran: no Python function started, and no built-in
    function was called from Python. From CPython 3.12 on, `sys.monitoring` watches a second call.
    """
    events: list[str] = []
    own = (sys.setprofile, sys.settrace)

    def note(frame: types.FrameType, event: str, argument: Any) -> None:
        if not any(argument is each for each in own):
            events.append(f"{event} {frame.f_code.co_qualname}")

    sys.settrace(note)
    sys.setprofile(note)
    try:
        result = call(*args, **kwargs)
    finally:
        sys.setprofile(None)
        sys.settrace(None)
    if sys.version_info >= (3, 12):
        _monitor(events, call, args, kwargs)
    return result, events


if sys.version_info >= (3, 12):

    def _monitor(
        events: list[str], call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        monitoring = sys.monitoring
        tool = monitoring.PROFILER_ID
        own = (call, monitoring.set_events)

        def started(code: types.CodeType, *_: Any) -> None:
            events.append(f"monitored {code.co_qualname}")

        def called(code: types.CodeType, offset: int, function: Any, argument: Any) -> None:
            if not any(function is each for each in own):
                events.append(f"monitored call of {function!r} by {code.co_qualname}")

        monitoring.use_tool_id(tool, "trident tests")
        try:
            wanted = monitoring.events.CALL
            monitoring.register_callback(tool, monitoring.events.CALL, called)
            for name in CODE_EVENTS:
                event = getattr(monitoring.events, name)
                monitoring.register_callback(tool, event, started)
                wanted |= event
            monitoring.set_events(tool, wanted)
            try:
                call(*args, **kwargs)
            finally:
                monitoring.set_events(tool, 0)
        finally:
            monitoring.free_tool_id(tool)
