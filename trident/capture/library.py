"""Which code counts as a library: its module-level objects are guarded by identity alone."""

from __future__ import annotations

import functools
import os
import site
import sys
import sysconfig
import types
import weakref
from importlib.machinery import EXTENSION_SUFFIXES
from typing import Any


def _holds_installed_packages(path: str) -> bool:
    """Whether pip installed into a folder of the search path, such as by ``--target``."""
    try:
        return any(name.endswith(".dist-info") for name in os.listdir(path or "."))
    except OSError:
        return False


def _library_folders() -> tuple[str, ...]:
    folders = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    folders += site.getsitepackages() if hasattr(site, "getsitepackages") else []
    folders += [path for path in sys.path if _holds_installed_packages(path)]
    for package in ("torch", "triton", "numpy"):
        module = sys.modules.get(package)
        if module is not None and module.__file__:
            folders.append(os.path.dirname(module.__file__))
    folders.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    return tuple(sorted({os.path.realpath(folder) + os.sep for folder in folders}))


_FOLDERS = _library_folders()


@functools.cache
def is_library_file(path: str) -> bool:
    """Whether a source file belongs to an installed package or the standard library."""
    if path.startswith("<frozen"):
        return True
    return _is_below_folders(path) if os.path.isabs(path) else _is_below_folders.__wrapped__(path)


@functools.cache
def _is_below_folders(path: str) -> bool:
    """Resolving links takes a system call per folder, and a trace asks thousands of times."""
    return os.path.realpath(path).startswith(_FOLDERS)


def is_library_globals(namespace: dict[str, Any]) -> bool:
    """Whether functions with these globals belong to a library; called by the native walker."""
    path = namespace.get("__file__")
    if isinstance(path, str):
        return is_library_file(path)
    # Interactive code and code made by exec has no file. It is the user's if it is the main module,
    # a module of its own, or of no module and met as a function of the user's; what is left are the
    # functions that libraries generate.
    name = namespace.get("__name__")
    if isinstance(name, str):
        if name in sys.builtin_module_names:
            return True
        module = sys.modules.get(name)
        if module is not None and vars(module) is namespace:
            return _is_part_of_extension(name)
    return not _functions_over.get(id(namespace))


def _is_part_of_extension(name: str) -> bool:
    """Whether a module without a file was made by a library's compiled module, as torch._C._nn."""
    while "." in name:
        name = name.rpartition(".")[0]
        path = getattr(sys.modules.get(name), "__file__", None)
        if isinstance(path, str):
            return path.endswith(tuple(EXTENSION_SUFFIXES)) and is_library_file(path)
    return False


# The user's functions, by the identity of globals that are no module's.
_functions_over: dict[int, weakref.WeakSet[types.FunctionType]] = {}


def note_users_function(function: types.FunctionType) -> None:
    """Takes note of a function that the user's code or objects hold: one that `exec` made over a
    dictionary, say, so that what it reads there counts."""
    namespace = function.__globals__
    of_named_tuple = namespace.get("__builtins__") == {}
    if "__file__" not in namespace and not of_named_tuple and is_library_globals(namespace):
        _functions_over.setdefault(id(namespace), weakref.WeakSet()).add(function)


def is_library_module(name: object) -> bool:
    """Whether classes that name this module as theirs belong to a library."""
    module = sys.modules.get(name) if isinstance(name, str) else None
    return module is not None and is_library_globals(vars(module))
