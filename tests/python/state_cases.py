"""What the soundness tests of state share: modules made of a function, and what they hold."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any

import torch
from torch import nn


class Mode(enum.Enum):
    DOUBLE = 2.0
    TRIPLE = 3.0


class Plain:
    def __init__(self, value: Any) -> None:
        self.value = value


class Slotted:
    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


def module(forward: Callable[..., Any], **attributes: Any) -> Callable[[], nn.Module]:
    """A factory of modules of a fresh class; callables given as attributes make the values."""

    def make() -> nn.Module:
        cls = type("Made", (nn.Module,), {"forward": forward, "__module__": __name__})
        made = cls()
        for name, value in attributes.items():
            setattr(made, name, value() if callable(value) else value)
        return made

    return make


def times_value(self: Any, x: torch.Tensor) -> Any:
    value = self.value
    while not isinstance(value, (int, float, complex)):
        if isinstance(value, (Plain, Slotted)):
            value = value.value
        elif isinstance(value, Mode):
            value = value.value
        elif isinstance(value, (list, tuple)):
            value = value[0]
        elif isinstance(value, dict):
            value = value["key"]
        elif isinstance(value, str):
            value = float(len(value))
        elif value is None:
            value = 7.0
        else:
            raise TypeError(type(value))
    return x * value


def linear() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
