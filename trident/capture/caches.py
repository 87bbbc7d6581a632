"""Functions with a cache (`functools.lru_cache`, `functools.cache`) that a call uses.

What such a function returned earlier it returns again, so a captured call may use it as long as
the entry is there. The cache itself is the guard: a dictionary in which each entry has to stay.
"""

from __future__ import annotations

import enum
import functools
import gc
import sys
import types
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

from trident.capture.leaves import LEAF_TYPES
from trident.capture.library import is_library_globals
from trident.errors import NotReadyError, UnsupportedError

if TYPE_CHECKING:
    from trident.capture.reads import ReadSet

# Caches of PyTorch's and Triton's own machinery hold no tensors of a call.
_KNOWN = ("torch", "triton", "sympy", "trident", "numpy", "torch_mlir", "pytest", "_pytest")

# Each entry is compared when the cache changed.
_MAX_ENTRIES = 256

_PLAIN = (
    *(type(None), bool, int, float, complex, str, bytes, range, enum.Enum, type),
    *(torch.dtype, torch.device, torch.layout, torch.memory_format),
    *(types.FunctionType, types.BuiltinFunctionType, *LEAF_TYPES),
)
_DEVICE_PROPERTIES = getattr(torch._C, "_CudaDeviceProperties", None)


class Caches:
    """All functions with a cache, of the user's and of libraries, before a trace."""

    def __init__(self) -> None:
        self._before: dict[Any, tuple[int, int]] = {}
        self._wrappers: dict[int, Any] = {}  # by the function
        self._refused: set[Any] = set()  # whose functions were about to run
        self.results: list[Any] = []  # of the caches that a trace used
        for wrapper in gc.get_referrers(functools._lru_cache_wrapper):  # instances among them
            if type(wrapper) is not functools._lru_cache_wrapper:
                continue
            top = (getattr(wrapper, "__module__", None) or "").partition(".")[0]
            if top in _KNOWN or top in sys.stdlib_module_names:
                continue
            counts = wrapper.cache_info()
            self._before[wrapper] = (counts.hits, counts.misses)
            self._wrappers[id(getattr(wrapper, "__wrapped__", None))] = wrapper

    def enter(self, function: types.FunctionType) -> None:
        """Called before a function of the user's runs; ends a trace that is to fill a cache.

        Raises:
            NotReadyError: the entry would hold what belongs to the trace.
        """
        wrapper = self._wrappers.get(id(function))
        if wrapper is None or wrapper.cache_info().misses == self._before[wrapper][1]:
            return  # called past the cache
        self._refused.add(wrapper)
        raise NotReadyError(f"the call is the first to use {_name(wrapper)}")

    def finish(self, reads: ReadSet) -> UnsupportedError | None:
        """Adds what the trace read from caches, and empties those that it filled.

        Returns:
            Why the call cannot be captured, or not yet: a cache that the trace fills may hold
            tensors of the trace.
        """
        problem: UnsupportedError | None = None
        for wrapper, (hits, misses) in self._before.items():
            counts = wrapper.cache_info()
            if (counts.hits, counts.misses) == (hits, misses) or wrapper in self._refused:
                continue
            filled = counts.misses != misses
            if filled:
                wrapper.cache_clear()
            owner = getattr(wrapper, "__wrapped__", None)
            if is_library_globals(getattr(owner, "__globals__", {})):
                continue
            name = _name(wrapper)
            if filled:
                problem = problem or NotReadyError(f"the call is the first to use {name}")
            else:
                problem = problem or self._read(wrapper, name, reads)
        return problem

    def _read(self, wrapper: Any, name: str, reads: ReadSet) -> UnsupportedError | None:
        counts = wrapper.cache_info()
        found = gc.get_referents(
            wrapper
        )  # the cache, the function, and keys and results if it is bounded
        caches = [
            each
            for each in found
            if type(each) is dict and each is not vars(wrapper) and len(each) == counts.currsize
        ]
        if len(caches) != 1:
            return UnsupportedError(f"the call uses {name}, which returns what can change")
        (cache,) = caches
        results = [each for each in found if each is not cache and each is not vars(wrapper)]
        if counts.maxsize is None:
            results += cache.values()
        elif counts.currsize >= counts.maxsize:
            return UnsupportedError(f"the call uses {name} that is full")
        if len(cache) > _MAX_ENTRIES:
            return UnsupportedError(f"the call uses {name} of more than {_MAX_ENTRIES} entries")
        if not all(map(_is_plain, results)):
            return UnsupportedError(f"the call uses {name}, which returns what can change")
        self.results += results
        reads.add_cache(cache, counts.maxsize)
        return None


def _name(wrapper: Any) -> str:
    return f"{getattr(wrapper, '__qualname__', '?')}, a function with a cache"


def parts_of(result: Any) -> Iterator[Any]:
    """What a plain result holds, and itself."""
    yield result
    if isinstance(result, tuple | frozenset):
        for item in result:
            yield from parts_of(item)
    elif getattr(type(result), "__dataclass_params__", None):
        for item in vars(result).values():
            yield from parts_of(item)


def _is_plain(value: Any) -> bool:
    """Whether nobody can change a value, but for modules and classes, down to what it holds."""
    if isinstance(value, tuple | frozenset):
        return all(map(_is_plain, value)) and not getattr(value, "__dict__", None)
    if isinstance(value, torch.Tensor):  # an input of the program
        return True
    if type(value) is object or isinstance(value, _PLAIN):
        return True
    if _DEVICE_PROPERTIES is not None and isinstance(value, _DEVICE_PROPERTIES):
        return True
    parameters = getattr(type(value), "__dataclass_params__", None)
    return bool(parameters and parameters.frozen) and all(map(_is_plain, vars(value).values()))
