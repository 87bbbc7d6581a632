"""Triton's own launch path on a machine without a GPU: all of it but the compiler and the driver.

`kernel[grid](...)`, autotuners, heuristics and hooks run as Triton ships them, for an H200 that
is not there; where Triton would compile, a stand-in keeps what it would have compiled, and where
it would launch, the kernel's source runs in the interpreter. So the Python around kernels runs
eagerly, and each launch shows which variant Triton itself chooses.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from triton.runtime.driver import driver
from triton.runtime.jit import JITFunction

import trident.kernel_choice
from trident.errors import UnsupportedError
from trident.kernels import (
    DEFAULT_TARGET,
    Variant,
    compile_variants,
    interpreted_runner,
    record_launch,
    specialize,
)

# Dynamic shared memory that a block of an H200 can have.
MAX_SHARED_BYTES = 227 << 10
_H200 = {"multiprocessor_count": 132, "max_shared_mem": MAX_SHARED_BYTES, "warpSize": 32}


class Sm90Driver:
    """What Triton asks of a driver before it compiles. Nothing is timed: every benchmark ties, so
    that an autotuner's winner is its first configuration."""

    def __init__(self) -> None:
        self.utils = SimpleNamespace(get_device_properties=lambda device: dict(_H200))

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_current_target(self) -> Any:
        return DEFAULT_TARGET

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cpu")

    def get_benchmarker(self) -> Any:
        return run_once


def run_once(call: Any, quantiles: Any = None, **_: Any) -> list[float]:
    """Stands in for a benchmark."""
    call()
    return [1.0, 1.0, 1.0]


@dataclasses.dataclass
class Kernel:
    """Stands in for Triton's `CompiledKernel`: what Triton would have compiled, and a launch."""

    source: JITFunction[Any]
    signature: dict[str, Any]
    constexprs: dict[Any, Any]
    attrs: dict[Any, Any]
    options: Any
    function: Any = None
    packed_metadata: Any = None

    def launch_metadata(self, *_: Any) -> None:
        return None

    def run(self, x: int, y: int, z: int, *launch: Any) -> None:
        """As Triton's launcher: stream, function, metadata and hooks, then all bound arguments."""
        if x * y * z == 0:
            return
        # The interpreter reads from a variant all but the values of this launch.
        kept = (self.signature, self.constexprs, self.attrs, self.options, DEFAULT_TARGET)
        values = _flat(self.signature.values(), launch[6:])
        params: Any = tuple(values)  # as many as there are values
        variant = Variant(self.source, self.source.__name__, "", "", params, *kept)
        interpreted_runner(variant)((x, y, z), values)

    def __getitem__(self, grid: Any) -> Any:
        return lambda *args: self.run(*grid, None, None, None, None, None, None, *args)


def _flat(types: Any, values: Any) -> list[Any]:
    flat: list[Any] = []
    for kind, value in zip(types, values, strict=True):
        if isinstance(kind, tuple):
            flat += _flat(kind, value)
        elif kind != "constexpr":
            flat.append(value.data_ptr() if hasattr(value, "data_ptr") else value)
    return flat


class Launches:
    """Every distinct variant that was launched, as Trident chooses it.

    Attributes:
        variants: of eager launches, by Trident's key.
        refused: why Trident would not take a launch.
        captured: what captured programs launch, since the last look.
    """

    def __init__(self) -> None:
        self.variants: dict[str, Variant] = {}
        self.refused: set[str] = set()
        self.captured: list[Variant] = []

    def check_captured(self) -> None:
        """Asserts that programs launch what eager launched, down to constants and alignment."""
        other = [each.label for each in self.captured if each.key not in self.variants]
        assert not other, f"eager launches no such variant of {other}"
        self.captured.clear()

    def check(
        self, kernel: Any, args: tuple[Any, ...], kwargs: dict[str, Any], triton_s: Kernel
    ) -> None:
        """Asserts that Trident chooses the variant that Triton chose for this launch."""
        try:
            request, _ = record_launch(kernel, args, kwargs, (1,), lambda x: x.data_ptr() % 16)
            variant = specialize(request, DEFAULT_TARGET)
        except UnsupportedError as error:
            self.refused.add(error.reason)
            return
        assert variant.signature == triton_s.signature
        assert variant.constexprs == triton_s.constexprs
        assert set(_present(variant.attrs)) == set(_present(triton_s.attrs))
        assert variant.attrs == triton_s.attrs
        assert variant.options == triton_s.options
        self.variants.setdefault(variant.key, variant)


def check_compiles(launches: Launches | None) -> None:
    """Compiles what a module's tests launched, one variant per kernel, for an H100 or H200."""
    if launches is None:
        pytest.skip("on a GPU the tests before this one ran the compiled kernels")
    assert launches.variants and not launches.refused, launches.refused
    by_kernel = {variant.kernel: variant for variant in launches.variants.values()}
    for compiled in compile_variants(list(by_kernel.values())):
        assert compiled.cubin[:4] == b"\x7fELF"
        assert compiled.shared <= MAX_SHARED_BYTES


def _present(attrs: dict[Any, Any]) -> list[Any]:
    return [path for path, value in attrs.items() if value]


@contextlib.contextmanager
def triton_on_cpu() -> Iterator[Launches]:
    """Within this, kernels that were decorated without TRITON_INTERPRET run on CPU tensors."""
    launches = Launches()

    def compile_nothing(
        self: Any,
        key: Any,
        signature: Any,
        device: Any,
        constexprs: Any,
        options: Any,
        attrs: Any,
        warmup: Any,
    ) -> Kernel:
        kernel = Kernel(self, signature, constexprs, attrs, options)
        self.device_caches[device][0][key] = kernel
        return kernel

    original = JITFunction.run

    def run(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        given = dict(kwargs)
        kernel = original(self, *args, grid=grid, warmup=warmup, **kwargs)
        launches.check(self, args, given, kernel)
        return kernel

    def specialize_captured(*args: Any) -> Variant:
        launches.captured.append(specialize(*args))
        return launches.captured[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trident.kernel_choice, "specialize", specialize_captured)
        patch.setattr(driver, "_active", Sm90Driver())
        patch.setattr(JITFunction, "_do_compile", compile_nothing)
        patch.setattr(JITFunction, "run", run)
        yield launches
