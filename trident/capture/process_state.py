"""State of the process and the thread that code can change: put back after a trace.

A host program replays none of it, so a call that leaves it changed is not captured, and eager has
to start from what was there before.
"""

from __future__ import annotations

import logging
import os
import random
from collections.abc import Callable
from typing import Any

import numpy
import torch

from trident.errors import UnsupportedError

_native: Any = torch._C


def _deterministic() -> tuple[bool, bool]:
    return (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
    )


def _set_deterministic(value: tuple[bool, bool]) -> None:
    torch.use_deterministic_algorithms(value[0], warn_only=value[1])


def _autocast(device: str) -> tuple[bool, torch.dtype]:
    return torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)


def _set_autocast(device: str) -> Callable[[tuple[bool, torch.dtype]], None]:
    def put_back(value: tuple[bool, torch.dtype]) -> None:
        torch.set_autocast_enabled(device, value[0])
        torch.set_autocast_dtype(device, value[1])

    return put_back


def _environment() -> dict[str, str]:
    return dict(os.environ)


def _set_environment(value: dict[str, str]) -> None:
    for name in os.environ.keys() - value.keys():
        del os.environ[name]
    os.environ.update(value)


def _numpy_state() -> tuple[Any, ...]:
    state: Any = numpy.random.get_state(legacy=True)
    return (state[0], state[1].tobytes(), *state[2:])


def _set_numpy_state(value: tuple[Any, ...]) -> None:
    keys = numpy.frombuffer(value[1], dtype=numpy.uint32)
    numpy.random.set_state((value[0], keys, *value[2:]))


def _print_options() -> dict[str, Any]:
    return dict(vars(torch._tensor_str.PRINT_OPTS))


def _anomaly_mode() -> tuple[bool, bool]:
    return torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()


def _flag(name: str, getter: str, setter: str) -> tuple[str, Any, Any] | None:
    get, put_back = getattr(_native, getter, None), getattr(_native, setter, None)
    return None if get is None or put_back is None else (name, get, put_back)


# What the code is said to change, how to read it, and how to put it back.
_SETTINGS: list[tuple[str, Callable[[], Any], Callable[[Any], Any]]] = [
    ("whether gradients are recorded", torch.is_grad_enabled, _native._set_grad_enabled),
    ("the default dtype", torch.get_default_dtype, torch.set_default_dtype),
    ("the number of threads", torch.get_num_threads, torch.set_num_threads),
    ("whether algorithms must be deterministic", _deterministic, _set_deterministic),
    ("autocast", lambda: _autocast("cpu"), _set_autocast("cpu")),
    ("autocast", lambda: _autocast("cuda"), _set_autocast("cuda")),
    ("autocast's cache", torch.is_autocast_cache_enabled, torch.set_autocast_cache_enabled),
    ("environment variables", _environment, _set_environment),
    ("PyTorch's print options", _print_options, vars(torch._tensor_str.PRINT_OPTS).update),
    ("anomaly mode", _anomaly_mode, lambda value: torch.set_anomaly_enabled(*value)),
    ("how NumPy handles errors", numpy.geterr, lambda value: numpy.seterr(**value)),
    ("NumPy's print options", numpy.get_printoptions, lambda v: numpy.set_printoptions(**v)),
    ("what is logged", lambda: logging.root.manager.disable, logging.disable),
    ("the state of Python's random module", random.getstate, random.setstate),
    ("the state of numpy.random", _numpy_state, _set_numpy_state),
    *(
        setting
        for setting in (
            _flag("cuDNN's switch", "_get_cudnn_enabled", "_set_cudnn_enabled"),
            _flag("cuDNN's benchmark mode", "_get_cudnn_benchmark", "_set_cudnn_benchmark"),
            _flag("cuDNN's determinism", "_get_cudnn_deterministic", "_set_cudnn_deterministic"),
            _flag("oneDNN's switch", "_get_mkldnn_enabled", "_set_mkldnn_enabled"),
            _flag("attention's backends", "_get_math_sdp_enabled", "_set_sdp_use_math"),
            _flag("attention's backends", "_get_flash_sdp_enabled", "_set_sdp_use_flash"),
            _flag("attention's backends", "_get_cudnn_sdp_enabled", "_set_sdp_use_cudnn"),
            _flag(
                "attention's backends",
                "_get_mem_efficient_sdp_enabled",
                "_set_sdp_use_mem_efficient",
            ),
        )
        if setting is not None
    ),
]


class ProcessState:
    """The settings as they are when this object is made."""

    def __init__(self) -> None:
        self._before = [get() for _, get, _ in _SETTINGS]

    def restore(self) -> UnsupportedError | None:
        """Puts the settings back; returns why the call cannot be captured if any had changed."""
        problem = None
        for (name, get, put_back), before in zip(_SETTINGS, self._before, strict=True):
            if get() != before:
                put_back(before)
                problem = problem or UnsupportedError(f"the call changes {name}")
        return problem
