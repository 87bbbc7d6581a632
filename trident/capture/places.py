"""Names and places: which module and which line of the user's code a traced operator came from."""

from __future__ import annotations

import os
import sys
import types
from typing import Any

import torch
import triton

from trident.capture.library import is_library_globals

_PLACE = "__trident_place__"  # an attribute of errors
_GENERATED = ("<frozen", "<eval_with_key")
_MACHINERY = tuple(
    os.path.dirname(os.path.abspath(path)) + os.sep
    for path in (torch.__file__, triton.__file__, os.path.dirname(__file__))
)


def runs_machinery(frame: types.FrameType) -> bool:
    """Whether a frame runs code of PyTorch, Triton, Trident, or code that a library generated."""
    path = frame.f_code.co_filename
    if not path.startswith("<"):
        return path.startswith(_MACHINERY)
    return path.startswith(_GENERATED) or is_library_globals(frame.f_globals)


def current_line() -> str | None:
    """``file.py:line`` of the innermost line outside of the machinery that runs now."""
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None:
        if not runs_machinery(frame):
            return f"{frame.f_code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back
    return None


def place_of(error: BaseException) -> str | None:
    """``file.py:line`` of the innermost line outside of the machinery that led to an error."""
    place: str | None = vars(error).get(_PLACE)
    traceback = error.__traceback__
    while traceback is not None:
        path = traceback.tb_frame.f_code.co_filename
        if not runs_machinery(traceback.tb_frame):
            place = f"{path}:{traceback.tb_lineno}"
        traceback = traceback.tb_next
    return place


def keep_only_place(error: BaseException) -> None:
    """Lets go of all frames that led to an error, and of what their variables keep alive."""
    vars(error)[_PLACE] = place_of(error)
    each: BaseException | None = error
    while each is not None and each.__traceback__ is not None:  # errors may lead to each other
        each.__traceback__ = None
        each = each.__cause__ or each.__context__


class Places:
    """Finds the place of whatever runs now.

    Args:
        modules: path of each (shadow) module by its identity.
    """

    def __init__(self, modules: dict[int, str]) -> None:
        self._modules = modules

    def current(self) -> tuple[str, str]:
        """Module path (may be empty) and ``file.py:line`` of the innermost user frame."""
        frame: types.FrameType | None = sys._getframe(1)
        place = ""
        while frame is not None:
            code = frame.f_code
            if not place and not runs_machinery(frame):
                place = f"{code.co_filename}:{frame.f_lineno}"
            if code.co_name == "forward" and code.co_varnames[:1] == ("self",):
                path = self._modules.get(id(frame.f_locals.get("self")))
                if path is not None:
                    return path, place or f"{code.co_filename}:{frame.f_lineno}"
            frame = frame.f_back
        return "", place


def tensor_names(
    tensors: list[torch.Tensor],
    num_arguments: int,
    root: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> list[str]:
    """Readable names of a call's tensors, for generated code and messages."""
    known: dict[int, str] = {}
    if isinstance(root, torch.nn.Module):
        for name, tensor in [*root.named_parameters(), *root.named_buffers()]:
            known.setdefault(id(tensor), name)
    for name, value in [*((f"args[{i}]", value) for i, value in enumerate(args)), *kwargs.items()]:
        if isinstance(value, torch.Tensor):
            known[id(value)] = name
    return [
        known.get(
            id(tensor),
            f"argument {index}" if index < num_arguments else f"state {index - num_arguments}",
        )
        for index, tensor in enumerate(tensors)
    ]
