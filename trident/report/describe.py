"""Arguments in words, for reports and messages."""

from __future__ import annotations

from typing import Any

import torch

_MAX_LENGTH = 400


def describe_value(value: Any, depth: int = 0) -> str:
    """One argument in words: a tensor by dtype, shape and device, containers by what they hold."""
    if isinstance(value, torch.Tensor):
        sizes = "x".join(str(size) for size in value.shape) or "scalar"
        text = f"{str(value.dtype).removeprefix('torch.')}[{sizes}]@{value.device}"
        if value.layout is not torch.strided:
            return f"{text} {str(value.layout).removeprefix('torch.')}"
        return text if value.is_contiguous() else f"{text} strides {tuple(value.stride())}"
    if depth > 2:
        return type(value).__name__
    if isinstance(value, dict):
        inner = ", ".join(
            f"{key!r}: {describe_value(item, depth + 1)}" for key, item in value.items()
        )
        return f"{type(value).__name__}({{{inner}}})"
    if isinstance(value, (tuple, list)):
        inner = ", ".join(describe_value(item, depth + 1) for item in value)
        return f"{type(value).__name__}({inner})"
    if value is None or isinstance(value, (bool, int, float, str, torch.dtype, torch.device)):
        return repr(value)
    return type(value).__name__


def describe_arguments(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """A call's arguments in words, in call order."""
    parts = [describe_value(value) for value in args]
    parts += [f"{name}={describe_value(value)}" for name, value in kwargs.items()]
    text = ", ".join(parts)
    return text if len(text) <= _MAX_LENGTH else text[: _MAX_LENGTH - 3] + "..."
