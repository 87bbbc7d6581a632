"""Kernels that the user compiled with `warmup` and launches themselves, in a trace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from triton.compiler.compiler import ASTSource, CompiledKernel

from trident.errors import UnsupportedError
from trident.kernels.target import backend_for
from trident.kernels.tuples import with_members


class _StandIn:
    """A tensor of a trace, as `warmup` looks at it."""

    def __init__(self, tensor: torch.Tensor, is_aligned: bool) -> None:
        self.dtype = tensor.dtype
        self.shape = tensor.shape
        self._address = 0 if is_aligned else 1

    def data_ptr(self) -> int:
        return self._address


def warmup_argument(value: Any, is_aligned: Callable[[torch.Tensor], bool]) -> Any:
    """What `warmup` is given in place of an argument that only a trace has."""
    if isinstance(value, torch.SymInt):
        return int(value)
    if isinstance(value, torch.Tensor):
        return _StandIn(value, is_aligned(value))
    if isinstance(value, tuple):
        return with_members(value, [warmup_argument(item, is_aligned) for item in value])
    return value


def launch_of(
    compiled: CompiledKernel, args: tuple[Any, ...], where: str
) -> tuple[Any, dict[str, Any]]:
    """The launch of a `@triton.jit` function that a compiled kernel's launch amounts to.

    A compiled kernel takes all arguments by position and ignores those it was compiled with.

    Returns:
        The function, and its arguments and options by name.

    Raises:
        UnsupportedError: the kernel was not compiled from a `@triton.jit` function's source alone.
    """

    def unsupported(reason: str) -> UnsupportedError:
        return UnsupportedError(f"launch of the compiled kernel {compiled.name}: {reason}", where)

    source = compiled.src
    if not isinstance(source, ASTSource):
        raise unsupported("it comes from another source than a @triton.jit function")
    names = source.fn.arg_names
    if len(args) != len(names):
        raise unsupported(f"it takes {len(names)} arguments and is given {len(args)}")
    if "total-num-warps" in compiled.asm.get("ttgir", ""):
        raise unsupported("it is warp specialized")
    arguments = dict(zip(names, args, strict=True))
    for path, value in source.constants.items():
        if len(path) == 1:
            arguments[names[path[0]]] = value
    facts = compiled.metadata._asdict()
    defaults = backend_for(facts["target"]).parse_options({}).__dict__
    options = {
        name: facts[name]
        for name, default in defaults.items()
        if isinstance(default, bool | int | float | str | None)
        and name in facts
        and facts[name] != default
    }
    for name in arguments.keys() & defaults.keys():  # by keyword it counts as both
        if arguments[name] != facts.get(name):
            raise unsupported(f"its parameter {name} is also the name of an option")
    return source.fn, {**options, **arguments}
