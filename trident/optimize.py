"""The public interface: `optimize`, `jit`, and the objects they return."""

from __future__ import annotations

import copy
import functools
import inspect
import types
from collections.abc import Callable
from typing import Any, Literal, TypeVar, Unpack, cast, overload

import torch
from triton.runtime.jit import JITCallable, KernelInterface

from trident import _C
from trident.capture.library import note_users_function
from trident.miss import Optimizer
from trident.options import Dynamic, OnUnsupported, Options, check_options

F = TypeVar("F", bound=Callable[..., Any])


def optimize(
    target: F,
    *,
    dynamic: Dynamic = "auto",
    graphs: Literal["auto"] | bool = "auto",
    on_unsupported: OnUnsupported = "eager",
    max_specializations: int = 64,
) -> F:
    """Returns `target` with its host work compiled into one native module.

    The first call with a given kind of arguments is captured and compiled; later calls that match
    run natively from entry to return. A module's result shares attributes, parameters and hooks
    with the original, has the same type, `state_dict`, train and eval mode, and can be copied and
    pickled.

    Args:
        target: an `nn.Module` or a function.
        dynamic: which sizes of arguments a specialization leaves open. ``"auto"``: none for the
            first call of a kind; where later ones differ from it in sizes, strides or int arguments
            alone, those become symbols, and one specialization serves all values of them that take
            the same way through the code. True: sizes, strides and int arguments that are neither 0
            nor 1, from the first call on; where the code does not allow that, as with ``"auto"``.
            False: none, so that every distinct shape gets a specialization of its own. A
            dictionary: what it names, from the first call on, and nothing else. By the name of an
            argument it has a `Dim` for an int, and a dictionary or list of `Dim`s by axis for a
            tensor: ``{"x": {0: trident.Dim("n", max=4096)}, "count": trident.Dim("count")}``.
        graphs: ``"auto"``: a specialization that keeps hitting on a GPU is captured into a CUDA
            graph, which later calls replay if their large and written inputs lie at the same
            addresses (small inputs are copied; outputs are always fresh); True: the same after
            fewer hits; False: calls run kernel by kernel. Where sizes vary, each size that keeps
            hitting has a graph of its own.
        on_unsupported: what to do with calls that cannot be compiled: ``"eager"`` runs them as they
            are, with one warning per reason; ``"raise"`` raises `UnsupportedError`.
        max_specializations: how many specializations are kept; beyond that the one used longest
            ago is dropped, with a warning.

    Returns:
        For a module, an object of the module's type that shares its state; for a function, a
        callable. Both have ``stats()`` (a dict: calls, hits, misses, fallbacks, errors, evictions,
        specializations, launches, aten_typed, aten_boxed, driver) and ``prepare(*args, **kwargs)``,
        which compiles what such a call needs without running it.

    Raises:
        TypeError: `target` is neither a module nor a function or callable object, but a class or a
            Triton kernel, say, or a hint is of the wrong type.
        ValueError: an option has a value that is not supported, or a hint names what is not there.
    """
    options: Options = {
        "dynamic": dynamic,
        "graphs": graphs,
        "on_unsupported": on_unsupported,
        "max_specializations": max_specializations,
    }
    check_options(options)
    original = _original_of(target)
    optimizer = Optimizer(original, options)
    make = _optimized_module if isinstance(original, torch.nn.Module) else _optimized_function
    return cast(F, make(original, optimizer))


@overload
def jit(function: F) -> F: ...
@overload
def jit(**options: Unpack[Options]) -> Callable[[F], F]: ...
def jit(function: Any = None, **options: Any) -> Any:
    """`optimize` as a decorator: ``@trident.jit`` or ``@trident.jit(on_unsupported="raise")``."""
    if function is None:
        return functools.partial(optimize, **options)
    return optimize(function, **options)


def optimizer_of(optimized: Any) -> Optimizer:
    """The optimizer behind what `optimize` returned.

    Raises:
        TypeError: for anything else.
    """
    function = optimized.__func__ if type(optimized) is OptimizedMethod else optimized
    found = getattr(type(function), "__trident_optimizer__", None)
    if not isinstance(found, Optimizer):
        raise TypeError(f"{type(optimized).__name__} is not the result of trident.optimize")
    return found


def _original_of(target: Any) -> Any:
    """Optimizing an optimized object starts from the original."""
    if type(target) is OptimizedMethod:
        return types.MethodType(_original_of(target.__func__), target.__self__)
    optimizer = getattr(type(target), "__trident_optimizer__", None)
    if isinstance(optimizer, Optimizer):
        return optimizer.function
    if isinstance(target, (KernelInterface, JITCallable)):
        raise TypeError(
            f"trident.optimize takes an nn.Module or a function, not {_kernel_name(target)}, which "
            "is a Triton kernel: optimize the function or module that launches it"
        )
    if isinstance(target, type):
        raise TypeError(
            f"trident.optimize takes an nn.Module or a function, not the class {target.__name__}: "
            "pass an instance of it"
        )
    if not callable(target):
        kind = type(target).__name__
        raise TypeError(f"trident.optimize takes an nn.Module or a function, not {kind}")
    if isinstance(target, types.FunctionType):
        note_users_function(target)
    return target


def _kernel_name(kernel: Any) -> str:
    while not hasattr(kernel, "__name__") and hasattr(kernel, "fn"):  # of a tuner, say
        kernel = kernel.fn
    return str(getattr(kernel, "__name__", type(kernel).__name__))


def _stats(self: Any) -> dict[str, Any]:
    """Counters since creation; see `trident.optimize`."""
    return optimizer_of(self).stats()


def _prepare(self: Any, *args: Any, **kwargs: Any) -> None:
    """Compiles what a call with these arguments needs, without running it.

    Raises:
        UnsupportedError: if such a call cannot be compiled.
    """
    optimizer_of(self).prepare(args, kwargs)


def _deepcopy(self: Any, memo: dict[int, Any]) -> Any:
    optimizer = optimizer_of(self)
    return optimize(copy.deepcopy(optimizer.function, memo), **optimizer.options)


def _copy(self: Any) -> Any:
    optimizer = optimizer_of(self)
    return optimize(copy.copy(optimizer.function), **optimizer.options)


def _reduce(self: Any, protocol: int) -> Any:
    optimizer = optimizer_of(self)
    return functools.partial(optimize, **optimizer.options), (optimizer.function,)


def _members(optimizer: Optimizer) -> dict[str, Any]:
    """What the class of an optimized object defines: each object has a class of its own, so that
    `__call__`, which Python looks up on the class, leads straight to its native module."""
    return {
        "__call__": _C.ModuleEntry(optimizer.scm),
        "__trident_optimizer__": optimizer,
        "__deepcopy__": _deepcopy,
        "__copy__": _copy,
        "__reduce_ex__": _reduce,
    }


def _optimized_module(module: torch.nn.Module, optimizer: Optimizer) -> torch.nn.Module:
    cls = type(module)
    members = _members(optimizer)
    members.update(
        __module__=cls.__module__,
        __qualname__=cls.__qualname__,
        __doc__=cls.__doc__,
        __trident_original__=cls,
        __slots__=(),
    )
    for name, method in (("stats", _stats), ("prepare", _prepare)):
        if not hasattr(module, name):
            members[name] = method
    optimized_class = types.new_class(cls.__name__, (cls,), None, lambda body: body.update(members))
    optimized: torch.nn.Module = object.__new__(optimized_class)
    object.__setattr__(optimized, "__dict__", module.__dict__)
    return optimized


class OptimizedMethod:
    """An optimized function bound to an object; attributes of the original show through."""

    __slots__ = ("__func__", "__self__")
    __func__: Any
    __self__: Any
    __call__ = _C.MethodEntry()

    stats = _stats  # of the function, for all objects

    def prepare(self, *args: Any, **kwargs: Any) -> None:
        """Compiles what a call with these arguments needs, without running it.

        Raises:
            UnsupportedError: if such a call cannot be compiled.
        """
        optimizer_of(self).prepare((self.__self__, *args), kwargs)

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.signature(types.MethodType(self.__func__, self.__self__))

    def __getattr__(self, name: str) -> Any:
        if name in OptimizedMethod.__slots__:  # not set yet
            raise AttributeError(name)
        return getattr(self.__func__, name)

    def __eq__(self, other: object) -> bool:
        if type(other) is not OptimizedMethod:
            return NotImplemented
        return self.__func__ is other.__func__ and self.__self__ is other.__self__

    def __hash__(self) -> int:
        return hash((id(self.__func__), id(self.__self__)))

    def __repr__(self) -> str:
        return f"<optimized method {self.__func__.__qualname__} of {self.__self__!r}>"

    def __deepcopy__(self, memo: dict[int, Any]) -> OptimizedMethod:
        copied: OptimizedMethod = self.__func__.__get__(copy.deepcopy(self.__self__, memo))
        return copied

    def __reduce__(self) -> Any:
        return getattr, (self.__self__, self.__func__.__name__)


_new = object.__new__


class OptimizedFunction:
    """An optimized function; attributes of the original show through."""

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None:
            return self
        method = _new(OptimizedMethod)
        method.__func__ = self
        method.__self__ = instance
        return method

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError("trident.optimize makes callable instances")

    def __getattr__(self, name: str) -> Any:
        message = f"an optimized function has no attribute {name!r}"
        if name in ("__code__", "__globals__"):  # what @triton.jit asks for first
            message += "; if this is for a Triton kernel: optimize the function that launches it"
        raise AttributeError(message, name=name, obj=self)

    stats = _stats
    prepare = _prepare


def _optimized_function(function: Callable[..., Any], optimizer: Optimizer) -> Any:
    cls = type("OptimizedFunction", (OptimizedFunction,), _members(optimizer))
    optimized = cls()
    functools.update_wrapper(optimized, function)
    return optimized
