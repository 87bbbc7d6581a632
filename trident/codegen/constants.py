"""Constants of a translation unit, each defined once under a name that says its value."""

from __future__ import annotations

import torch

from trident.codegen import names
from trident.errors import UnsupportedError

_LONGEST_NAME = 40

_DEVICE_TYPES = {"cpu": 0, "cuda": 1}


class Constants:
    """Collects definitions while expressions are written."""

    def __init__(self) -> None:
        self.definitions: list[str] = []
        self.numbers: list[str] = []
        self._names = names.Names()
        self._known: dict[str, str] = {}

    def ints(self, values: tuple[int, ...] | list[int]) -> str:
        """The name of an array of int64_t. An empty list has one too: ``nullptr`` means None."""
        listed = [int(value) for value in values]
        # A zero-length array is no C++: one element stands there and the count says 0.
        text = ", ".join(names.integer(value) for value in listed) or "0"
        label = f"Ints_{names.suffix(listed)}" if listed else "NoInts"
        return self._define("int64_t", label, f"[] = {{{text}}}")

    def doubles(self, values: list[float]) -> str:
        """The name of an array of double."""
        listed = [float(value) for value in values]
        text = ", ".join(names.floating(value) for value in listed) or "0"
        label = f"Doubles_{names.suffix(listed)}" if listed else "NoDoubles"
        return self._define("double", label, f"[] = {{{text}}}")

    def integer(self, value: int) -> str:
        """The name of one int64_t, whose address stands for a present optional."""
        return self._define("int64_t", f"Int_{names.suffix([value])}", f" = {names.integer(value)}")

    def double(self, value: float) -> str:
        """The name of one double, likewise."""
        return self._define(
            "double", f"Double_{names.suffix([value])}", f" = {names.floating(value)}"
        )

    def scalar(self, value: bool | int | float) -> str:
        """The name of a trident_scalar."""
        if isinstance(value, bool):
            label, text = str(value), f"{{TRIDENT_SCALAR_BOOL, {{{int(value)}}}}}"
            return self._define("trident_scalar", label, f" = {text}")
        if isinstance(value, int):
            text = f"{{TRIDENT_SCALAR_INT, {{{names.integer(value)}}}}}"
            return self._define("trident_scalar", f"Scalar_{names.suffix([value])}", f" = {text}")
        # Only a union's first member can be initialized by position, hence the function.
        return self._define(
            "trident_scalar",
            f"Scalar_{names.suffix([value])}",
            f" = float_scalar({names.floating(value)})",
        )

    def number(self, value: bool | int | float) -> str:
        """A trident_tensor that stands for the number: an element of the frame's `number_tensors`.

        ``self.numbers`` lists the scalars that the program has the runtime make into tensors.
        """
        scalar = self.scalar(value)
        if scalar not in self.numbers:
            self.numbers.append(scalar)
        return f"num[number::{_enumerator(scalar)}]"

    def number_enumerators(self) -> list[str]:
        """The positions in the frame's `number_tensors`, by name."""
        return [_enumerator(scalar) for scalar in self.numbers]

    def device(self, value: torch.device | str) -> str:
        """The name of a trident_device."""
        device = torch.device(value)
        label = f"Device_{names.identifier(str(device))}"
        return self._define("trident_device", label, f" = {device_literal(device)}")

    def _define(self, type_: str, label: str, rest: str) -> str:
        key = type_ + rest
        if key not in self._known:
            if len(label) > _LONGEST_NAME:
                label = f"{label[: _LONGEST_NAME - 8].rstrip('_')}_and_more"
            name = self._names.unique(f"k{label}")
            self._known[key] = name
            self.definitions.append(f"static const {type_} {name}{rest};")
        return self._known[key]


def _enumerator(scalar: str) -> str:
    # Not `n2`, which is how symbols are spelled.
    return f"value_{scalar.removeprefix('k').removeprefix('Scalar_')}"


def device_literal(device: torch.device) -> str:
    """A trident_device initializer."""
    if device.type not in _DEVICE_TYPES:
        raise UnsupportedError(f"tensors on {device} are not supported")
    index = -1 if device.index is None else device.index
    return f"{{{_DEVICE_TYPES[device.type]}, {index}}}"
