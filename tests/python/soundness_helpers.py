"""Optimized against eager, with changes between the calls."""

from __future__ import annotations

import dataclasses
import re
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch

import trident

Change = Callable[[Any], object]


def describe(value: Any) -> Any:
    """A result as plain data: types, structure, and each tensor's geometry and bytes."""
    if isinstance(value, torch.Tensor):
        contiguous = value.detach().contiguous().reshape(-1)
        return (
            type(value).__name__,
            str(value.dtype),
            tuple(value.shape),
            value.stride(),
            value.requires_grad,
            value.is_inference(),
            contiguous.view(torch.uint8).tolist() if contiguous.numel() else [],
        )
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return type(value).__name__, [describe(getattr(value, f)) for f in vars(value)]
    if isinstance(value, Mapping):
        return type(value).__name__, [(describe(k), describe(v)) for k, v in value.items()]
    if isinstance(value, (tuple, list)):
        return type(value).__name__, [describe(item) for item in value]
    if type(value).__repr__ is object.__repr__:  # its address would differ
        return type(value).__name__, describe(getattr(value, "__dict__", None))
    return type(value).__name__, re.sub(r" at 0x[0-9a-f]+", "", repr(value))


_LETTERS = {"hits": "h", "misses": "m", "fallbacks": "f", "errors": "e"}


class Pair:
    """The same thing twice: one optimized, one eager.

    Args:
        make: builds a target (a module or function) from scratch, classes included.
        arguments: builds a call's positional and keyword arguments from scratch.
    """

    def __init__(
        self,
        make: Callable[[], Any],
        arguments: Callable[[], Any] = lambda: torch.arange(4.0),
        **options: Any,
    ) -> None:
        self.target, self.eager = make(), make()
        self.fast = trident.optimize(self.target, **options)
        self.arguments = arguments

    def change(self, change: Change) -> None:
        """Applies a change to what both arms run."""
        change(self.target)
        change(self.eager)

    def call(self, times: int = 2, arguments: Callable[[], Any] | None = None) -> str:
        """Calls both; asserts equal results and equal effects on the arguments.

        Returns:
            One letter per call: h(it), m(iss), f(allback) or e(rror).
        """
        outcomes = ""
        for _ in range(times):
            mine, theirs = (_as_tuple((arguments or self.arguments)()) for _ in range(2))
            before = self.fast.stats()
            got = _outcome(self.fast, mine)
            after = self.fast.stats()
            expected = _outcome(self.eager, theirs)
            assert got == expected, f"optimized {got}, eager {expected} after {outcomes!r}"
            assert describe(mine) == describe(theirs), "the arguments differ afterwards"
            outcomes += "".join(
                letter * (after[name] - before[name]) for name, letter in _LETTERS.items()
            )
        return outcomes


def _as_tuple(arguments: Any) -> tuple[Any, ...]:
    return arguments if isinstance(arguments, tuple) else (arguments,)


def _outcome(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    positional = arguments
    keywords: dict[str, Any] = {}
    if arguments and type(arguments[-1]) is Keywords:
        *positional, keywords = arguments  # type: ignore[assignment]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return describe(function(*positional, **keywords))
        except Exception as error:
            return type(error)


class Keywords(dict[str, Any]):
    """Keyword arguments, as the last element of a call's arguments."""


def check(
    make: Callable[[], Any],
    change: Change,
    *,
    arguments: Callable[[], Any] = lambda: torch.arange(4.0),
    before: str = "mh",
    after: str = "mh",
) -> Pair:
    """Two calls, a change, two calls: results are eager's and the outcomes as given."""
    with torch.no_grad():
        pair = Pair(make, arguments)
        assert pair.call() == before
        pair.change(change)
        assert pair.call() == after
    return pair


def check_function(
    function: Callable[..., Any], change: Callable[[], Any], *args: Any, outcomes: str = "mhmh"
) -> None:
    """Two calls, a change that shows, two calls: each as eager."""
    fast, x = trident.optimize(function), torch.ones(3)
    seen = ""
    for step in range(4):
        before, expected = fast.stats(), function(x, *args)
        if step == 2:
            old, expected = expected, (change(), function(x, *args))[1]
            assert not torch.equal(old, expected)
        assert torch.equal(fast(x, *args), expected)
        after = fast.stats()
        seen += "".join(
            letter * (after[name] - before[name])
            for letter, name in (("m", "misses"), ("h", "hits"), ("f", "fallbacks"))
        )
    assert seen == outcomes
