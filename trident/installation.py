"""What Trident needs to be there, checked before any of it is imported."""

from __future__ import annotations

import importlib.util

import torch  # its libraries must be loaded before the extension module

from trident.errors import TridentError

_PACKAGES = {
    "triton": "pip install 'triton>=3.6,<3.9'",
    "torch_mlir": "pip install torch-mlir==20261001",
}


def check_installation() -> None:
    """Loads the native module.

    Raises:
        TridentError: a package or the native module is missing or does not fit; says what to run.
    """
    for package, command in _PACKAGES.items():
        if importlib.util.find_spec(package) is None:
            raise TridentError(
                f"Trident needs the package {package}, which is not installed. Run: {command}"
            )
    try:
        importlib.import_module("trident._C")
    except ImportError as error:
        raise TridentError(
            "Trident's native module is missing or was built for another torch "
            f"(this is torch {torch.__version__}): {error}. Build it against the installed torch "
            "with: pip install --no-build-isolation --force-reinstall --no-deps ."
        ) from error


check_installation()
