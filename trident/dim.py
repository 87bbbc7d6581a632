"""Hints about what varies: `trident.Dim`, for the ``dynamic`` option."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import torch

from trident import _C
from trident.capture.soft_words import SoftKind, SymbolicWords, signed, soft_words
from trident.errors import HintError


@dataclasses.dataclass(frozen=True)
class Dim:
    """A size or int argument that varies between calls, like `torch.export.Dim`.

    Sizes and numbers of one name are equal in every call that the same specialization serves. Sizes
    0 and 1, and values outside of the range, get specializations of their own.

    Args:
        name: an identifier.
        min: the smallest value.
        max: the largest value; None for any.

    Raises:
        TypeError: a name that is no string or a bound that is no int.
        ValueError: a name that is no identifier, or an empty range.
    """

    name: str
    min: int = 0
    max: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise TypeError(f"Dim({self.name!r}): the name must be a string")
        if not self.name.isidentifier():
            raise ValueError(f"Dim({self.name!r}): the name must be an identifier")
        for bound, value in (("min", self.min), ("max", self.max)):
            if type(value) is not int and (bound == "min" or value is not None):
                raise TypeError(f"Dim({self.name!r}): {bound}={value!r} must be an int")
        if self.max is not None and self.max < self.min:
            raise ValueError(f"Dim({self.name!r}): min={self.min} is above max={self.max}")

    def holds(self, value: int) -> bool:
        """Whether a value is in the range."""
        return self.min <= value and (self.max is None or value <= self.max)


Hint: TypeAlias = "Dim | Mapping[int, Dim | None] | Sequence[Dim | None] | None"
"""Of an int argument a `Dim`; of a tensor the `Dim` of each axis that varies."""


class Hints:
    """The hints of one optimized callable.

    Args:
        hints: by argument name, as ``dynamic`` was given them.
        function: the module or function.

    Raises:
        HintError: a hint that is none, an argument that the function does not have, a negative
            axis, or a name that stands for two ranges.
    """

    def __init__(self, hints: Mapping[str, Hint], function: Callable[..., Any]) -> None:
        called = function.forward if isinstance(function, torch.nn.Module) else function
        self._signature = inspect.signature(called)
        parameters = self._signature.parameters
        self._keywords = next(
            (name for name, each in parameters.items() if each.kind is each.VAR_KEYWORD), None
        )
        self._hints = {name: _normalized(name, hint) for name, hint in hints.items()}
        for name in hints:
            if name not in parameters and self._keywords is None:
                known = ", ".join(parameters)
                raise HintError(f"dynamic: there is no argument {name!r}, only {known}")
        ranges: dict[str, Dim] = {}
        for name, hint in self._hints.items():
            for each in hint.values() if isinstance(hint, dict) else (hint,):
                if ranges.setdefault(each.name, each) != each:
                    raise HintError(
                        f"dynamic: {name!r} has another range for Dim({each.name!r}) than elsewhere"
                    )

    def words(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], facts: _C.Facts
    ) -> SymbolicWords | None:
        """The words of a call that are symbols according to the hints; None for none.

        Raises:
            HintError: a hint for an axis that the call's tensor does not have, or for an argument
                that is neither an int nor a tensor.
        """
        try:
            bound = self._signature.bind(*args, **kwargs).arguments
        except TypeError:
            return None  # the call raises that itself
        bound = {**bound, **bound.get(self._keywords or "", {})}
        places: dict[tuple[SoftKind, int, Any], Dim] = {}
        for name, hint in self._hints.items():
            if bound.get(name) is not None:
                _place(name, bound[name], hint, self._index(name, args, kwargs), facts, places)
        words = [word for word in soft_words(facts.soft_words) if word.position < len(facts.words)]
        values = {word.position: signed(facts.words[word.position]) for word in words}
        dims = {
            word.position: places[word.kind, word.index, word.place]
            for word in words
            if (word.kind, word.index, word.place) in places
        }
        by_name: dict[str, set[int]] = {}
        for position, dim in dims.items():
            by_name.setdefault(dim.name, set()).add(values[position])
        chosen = []
        for word in words:
            value = values[word.position]
            if word.position not in dims or (word.kind is SoftKind.SIZE and value in (0, 1)):
                continue
            dim = dims[word.position]
            if dim.holds(value) and len(by_name[dim.name]) == 1:
                chosen.append(word)
        strides = _strides({(w.kind, w.index, w.place): w for w in words}, values, chosen)
        chosen = sorted((*chosen, *strides), key=lambda word: word.position)
        positions = {word.position for word in chosen}
        if not chosen:
            return None
        kept = {position: dim for position, dim in dims.items() if position in positions}
        return SymbolicWords(tuple(chosen), values, dims=kept)

    def _index(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
        """The position of an argument in the call, keyword arguments last."""
        if name in kwargs:
            return len(args) + list(kwargs).index(name)
        return list(self._signature.parameters).index(name)


def _normalized(name: str, hint: Any) -> Dim | dict[int, Dim]:
    """A `Dim`, or the `Dim`s of a tensor by axis."""
    if hint is None:
        return {}
    if isinstance(hint, Dim):
        return hint
    if isinstance(hint, Mapping):
        pairs = list(hint.items())
    elif isinstance(hint, Sequence) and not isinstance(hint, str):
        pairs = list(enumerate(hint))
    else:
        raise HintError(f"dynamic: {name!r} has the hint {hint!r}; use a Dim or Dims by axis")
    for axis, dim in pairs:
        if type(axis) is not int or (dim is not None and not isinstance(dim, Dim)):
            raise HintError(f"dynamic: {name!r} has {axis!r}: {dim!r}; use an axis and a Dim")
        if axis < 0:
            raise HintError(f"dynamic: {name!r} has the axis {axis}; count axes from the front")
    return {axis: dim for axis, dim in pairs if dim is not None}


def _place(
    name: str,
    value: Any,
    hint: Dim | dict[int, Dim],
    index: int,
    facts: _C.Facts,
    places: dict[tuple[SoftKind, int, Any], Dim],
) -> None:
    """Notes which soft words a hint means."""
    if isinstance(hint, Dim):
        if type(value) is not int:
            raise HintError(f"dynamic: {name!r} has a Dim, which is for ints and axes of tensors")
        places[SoftKind.INT_ARGUMENT, index, 0] = hint
        return
    if not hint:
        return
    if not isinstance(value, torch.Tensor):
        raise HintError(f"dynamic: {name!r} has hints for axes and is a {type(value).__name__}")
    tensor = next(i for i, each in enumerate(facts.tensors) if each is value)
    for axis, dim in hint.items():
        if axis >= value.dim():
            raise HintError(f"dynamic: {name!r} has {value.dim()} axes, and no axis {axis}")
        places[SoftKind.SIZE, tensor, axis] = dim


def _strides(
    words: dict[tuple[SoftKind, int, Any], Any], values: dict[int, int], sizes: list[Any]
) -> list[Any]:
    """The strides that are extents of axes whose sizes vary."""
    found: list[Any] = []
    open_axes = {(word.index, word.place) for word in sizes if word.kind is SoftKind.SIZE}
    strides = sorted(
        (word for (kind, _, _), word in words.items() if kind is SoftKind.STRIDE),
        key=lambda word: values[word.position],
    )
    for word in strides:
        if values[word.position] in (0, 1):
            continue
        for inner in strides:
            size = words[SoftKind.SIZE, inner.index, inner.place]
            extent = values[size.position] * values[inner.position]
            varies = (inner.index, inner.place) in open_axes or inner in found
            if inner.index == word.index and inner is not word and varies:
                if extent == values[word.position]:
                    found.append(word)
                    break
    return found
