"""Calls whose effect or result a trace would freeze: what the native recorder refuses."""

from __future__ import annotations

import builtins
import contextvars
import datetime
import importlib
import inspect
import io
import logging
import pathlib
import random
import sys
import threading
import types
import warnings
from collections.abc import Iterator
from typing import Any

import numpy
import torch

_OUTPUT = "the call prints, logs or reads: {} has an effect outside of its tensors"
_CLOCK = (
    "the call asks for the time or a random number of Python: {} gives another result each time"
)
_INSIDE = "the call asks for what a trace cannot replay: {}"
_SYSTEM = "the call deals with files, processes or the system: {}"

# Modules written in C whose functions ask for, or change, what is no fact of a call. The names are
# those that may be called: their results follow from their arguments.
_NATIVE_MODULES: dict[str, tuple[str, tuple[str, ...]]] = {
    "posix": (_SYSTEM, ("fspath", "cpu_count", "strerror")),
    "time": (_CLOCK, ("get_clock_info", "gmtime", "mktime", "strptime")),
    "sys": (_INSIDE, ("intern", "exc_info", "exception", "is_finalizing", "getdefaultencoding")),
    "gc": (_INSIDE, ()),
    "_decimal": (_INSIDE, ()),
    "_locale": (_INSIDE, ("gettext", "dgettext", "dcgettext")),
    "atexit": (_INSIDE, ()),
    "_thread": (_INSIDE, ("allocate_lock", "RLock")),
    "_signal": (_SYSTEM, ()),
    "_socket": (_SYSTEM, ("htonl", "htons", "ntohl", "ntohs", "inet_aton", "inet_ntoa")),
    "_posixsubprocess": (_SYSTEM, ()),
    "select": (_SYSTEM, ()),
    "fcntl": (_SYSTEM, ()),
    "resource": (_SYSTEM, ()),
    "pwd": (_SYSTEM, ()),
    "grp": (_SYSTEM, ()),
    "syslog": (_OUTPUT, ()),
    "faulthandler": (_INSIDE, ()),
}

# Their Python counterparts. Functions that only work on text may be called.
_PYTHON_MODULES: dict[str, tuple[str, ...]] = {
    "os": ("fsencode", "fsdecode", "fspath", "getenv", "getenvb"),
    "genericpath": ("commonprefix", "_splitext", "_check_arg_types"),
    "glob": ("escape", "has_magic"),
    "shutil": (),
    "subprocess": ("list2cmdline",),
    "tempfile": (),
    "socket": (),
    "uuid": ("uuid3", "uuid5"),
    "secrets": (),
}
_PATH_FUNCTIONS = ("lexists", "ismount", "realpath", "abspath", "relpath", "expanduser")


def call_rules() -> dict[Any, Any]:
    """What the native recorder refuses: see csrc/guards/recorder.h."""
    rules = dict(_RULES)
    for function in _compiling_functions():
        rules[function] = (f"the call uses {function.__name__}, which compiles what it is given",)
    if torch.is_inference_mode_enabled():  # a trace runs outside of it
        rules[torch.is_inference_mode_enabled] = (
            "the call asks whether inference mode is on, which it is not while it is captured"
        )
    if not any(map(torch.is_autocast_enabled, ("cpu", "cuda"))):  # else the dtype is a fact
        for name in _AUTOCAST_DTYPES:
            rules[getattr(torch, name)] = f"the call asks for {name} while autocast is off"
    return rules


def _make_rules() -> dict[Any, Any]:
    rules: dict[Any, Any] = {}
    for function, label, reason in (*_native_functions(), *_python_functions()):
        rules[function] = reason.format(label)
    for name in ("print", "open", "input"):
        rules[getattr(builtins, name)] = _OUTPUT.format(name)
    rules[warnings.warn] = _OUTPUT.format("warnings.warn")
    rules[logging.Logger._log] = _OUTPUT.format("logging")
    rules[io.TextIOWrapper.write] = _OUTPUT.format("write")
    for name in ("id", "hash", "globals"):
        rules[getattr(builtins, name)] = _INSIDE.format(name)
    rules[torch.is_inference] = _INSIDE.format("torch.is_inference")
    for cls, name in (
        (datetime.datetime, "now"),
        (datetime.datetime, "utcnow"),
        (datetime.date, "today"),
    ):
        rules[getattr(cls, name)] = _CLOCK.format(f"datetime.{name}")
    for name in ("random", "getrandbits"):
        rules[getattr(random, name)] = _CLOCK.format(f"random.{name}")
    posix = importlib.import_module("posix")
    rules[posix.urandom] = (_CLOCK.format("os.urandom"),)
    for lock in (type(threading.Lock()), type(threading.RLock())):
        for name in ("acquire", "acquire_lock", "release", "release_lock", "locked", "_is_owned"):
            if hasattr(lock, name):  # `with` has no other effect than its own
                rules[getattr(lock, name)] = _INSIDE.format(f"{name} of a lock")
    for name in ("setLevel", "addHandler", "removeHandler", "addFilter", "removeFilter"):
        rules[getattr(logging.Logger, name, None) or getattr(logging.Filterer, name)] = (
            _OUTPUT.format(f"Logger.{name}")
        )
    for module, names in (
        (warnings, ("filterwarnings", "simplefilter", "resetwarnings")),
        (logging, ("disable",)),
        (numpy, ("seterr", "set_printoptions", "seterrcall", "setbufsize")),
        (torch, ("set_printoptions",)),
    ):
        for name in names:
            rules[getattr(module, name)] = _INSIDE.format(f"{module.__name__}.{name}")
    start_thread = importlib.import_module("_thread").start_new_thread
    rules[start_thread] = (_INSIDE.format("a new thread"),)
    rules.update(_torch_functions())
    return rules


def _native_functions() -> Iterator[tuple[Any, str, str]]:
    for name, (reason, allowed) in _NATIVE_MODULES.items():
        try:
            module = importlib.import_module(name)
        except ImportError:
            continue  # not on this system
        for attribute, value in vars(module).items():
            if isinstance(value, types.BuiltinFunctionType) and attribute not in allowed:
                yield value, f"{name.lstrip('_')}.{attribute}", reason


def _python_functions() -> Iterator[tuple[Any, str, str]]:
    for name, allowed in _PYTHON_MODULES.items():
        for attribute, value in vars(importlib.import_module(name)).items():
            if (
                isinstance(value, types.FunctionType)
                and value.__module__ == name
                and attribute not in allowed
            ):
                yield value, f"{name}.{attribute}", _SYSTEM
    posixpath = importlib.import_module("posixpath")
    for attribute in _PATH_FUNCTIONS:
        yield getattr(posixpath, attribute), f"os.path.{attribute}", _SYSTEM
    for attribute, value in vars(pathlib.Path).items():
        if isinstance(value, types.FunctionType) and not attribute.startswith("__"):
            yield value, f"pathlib.Path.{attribute}", _SYSTEM
    for function in (inspect.currentframe, inspect.stack, inspect.trace):
        yield function, f"inspect.{function.__name__}", _INSIDE
    yield threading.Thread.start, "Thread.start", _INSIDE
    for name in ("current_thread", "active_count", "enumerate", "main_thread"):
        yield getattr(threading, name), f"threading.{name}", _INSIDE


def _compiling_functions() -> Iterator[Any]:
    """Functions that run torch.compile by themselves, in eager, too. Inside of a trace that fails,
    and PyTorch 2.11 then remembers so of calls outside as well."""
    for name in ("cond", "while_loop", "scan", "associative_scan", "map"):
        yield getattr(torch._higher_order_ops, name)
    flex_attention = sys.modules.get("torch.nn.attention.flex_attention")  # slow to import
    if flex_attention is not None:
        yield flex_attention.flex_attention


_AUTOCAST_DTYPES = ("get_autocast_dtype", "get_autocast_gpu_dtype", "get_autocast_cpu_dtype")

# Settings that no result of a kernel depends on. PyTorch itself may ask for them.
_SETTINGS = (
    *("is_autocast_cache_enabled", "is_anomaly_enabled", "is_anomaly_check_nan_enabled"),
    *("_get_warnAlways", "_is_multithreading_enabled"),
    *("_check_sparse_tensor_invariants", "_get_sdp_priority_order"),
    *("_get_linalg_preferred_backend", "_get_blas_preferred_backend"),
    *("_cuda_get_cudnn_benchmark_limit", "_get_nnpack_enabled", "_is_fwd_grad_enabled"),
    "_is_view_replay_enabled",
)


# Settings that kernels read while they run, or that a trace does not keep apart from the caller's.
_SETTERS = (
    *("_set_default_dtype", "_set_default_tensor_type", "set_num_threads", "set_flush_denormal"),
    *("_set_deterministic_algorithms", "_set_deterministic_fill_uninitialized_memory"),
    *("_set_cudnn_enabled", "_set_cudnn_benchmark", "_set_cudnn_deterministic"),
    *("_set_cudnn_allow_tf32", "_set_cudnn_depthwise_kernel", "_cuda_set_cudnn_benchmark_limit"),
    *("_set_mkldnn_enabled", "_set_mkldnn_deterministic", "_set_onednn_allow_tf32"),
    *("_set_cublas_allow_tf32", "_set_cublas_allow_fp16_accumulation"),
    "_set_cublas_allow_fp16_reduced_precision_reduction",
    "_set_cublas_allow_bf16_reduced_precision_reduction",
    *("_set_float32_matmul_precision", "_set_fp32_precision_setter", "_set_nnpack_enabled"),
    "_set_cpu_allow_fp16_reduced_precision_reduction",
    "_set_math_sdp_allow_fp16_bf16_reduction",
    *("_set_linalg_preferred_backend", "_set_blas_preferred_backend"),
)


def _wrapped_settings() -> Iterator[Any]:
    """What asks for such a setting in Python of PyTorch's."""
    yield torch.backends.cuda.preferred_linalg_library
    yield getattr(torch.backends.cuda, "preferred_blas_library", None)
    yield torch.is_warn_always_enabled
    yield torch.sparse.check_sparse_tensor_invariants.is_enabled


def _torch_functions() -> dict[Any, Any]:
    """PyTorch's own state that a host program does not touch; whoever asks or changes it."""
    rules: dict[Any, Any] = {}
    for name in ("manual_seed", "seed", "set_state", "get_state", "initial_seed"):
        rules[getattr(torch.Generator, name)] = (f"the call uses Generator.{name}",)
    for name in _SETTINGS:
        function = getattr(torch, name, None) or getattr(torch._C, name, None)
        if function is not None:
            rules[function] = f"the call asks for a setting that is no fact of a call: {name}"
    for function in _wrapped_settings():
        if function is not None:
            name = function.__qualname__
            rules[function] = (f"the call asks for a setting that is no fact of a call: {name}",)
    for name in _SETTERS:
        function = getattr(torch._C, name, None)
        if function is not None:
            rules[function] = (f"the call changes a setting of PyTorch: {name.lstrip('_')}",)
    for name in ("geterr", "get_printoptions", "geterrcall", "getbufsize"):
        rules[getattr(numpy, name)] = (_INSIDE.format(f"numpy.{name}"),)
    for name in ("get", "set", "reset"):
        rules[getattr(contextvars.ContextVar, name)] = _INSIDE.format(f"ContextVar.{name}")
    rules[torch.set_default_device] = ("the call sets the default device",)
    native: Any = torch._C
    for cls in (torch.Event, getattr(native, "_CudaEventBase", None)):
        for name in ("record", "wait", "synchronize", "query", "elapsed_time"):
            method = getattr(cls, name, None)
            if method is not None:
                rules[method] = (f"the call uses an event of a stream (Event.{name})",)
    switch = getattr(native, "_cuda_setStream", None)
    if switch is not None:
        rules[switch] = ("the call switches streams",)
    return rules


_RULES = _make_rules()
