"""Operators whose kernels are Python code: captured, and noticed when they change."""

from __future__ import annotations

import re
import threading
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from torch import Tensor

import trident
from trident.capture import registrations

NAMESPACE = f"trident_test_{uuid.uuid4().hex[:8]}"
KEYS = {"cpu": "CPU", "cuda": "CUDA"}
OVERRIDE = {"allow_override": True}  # the default of newer PyTorch


@triton.jit
def scale_kernel(x, y, n, factor, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + offsets, mask=offsets < n)
    tl.store(y + offsets, value * factor, mask=offsets < n)


def launch_scale(kernel: Any, x: Tensor, y: Tensor, factor: float) -> None:
    kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, x.numel(), factor, BLOCK=32)


@torch.library.triton_op(f"{NAMESPACE}::triton_scale", mutates_args=())
def triton_scale(x: Tensor, factor: float) -> Tensor:
    y = torch.empty_like(x)
    launch_scale(torch.library.wrap_triton(scale_kernel), x, y, factor)
    return y


@torch.library.custom_op(f"{NAMESPACE}::custom_scale", mutates_args=())
def custom_scale(x: Tensor, factor: float = 3.0) -> Tensor:
    y = torch.empty_like(x)
    launch_scale(scale_kernel, x, y, factor)
    return y


@torch.library.custom_op(f"{NAMESPACE}::scale_in_place", mutates_args=("x",))
def scale_in_place(x: Tensor, factor: float) -> None:
    launch_scale(scale_kernel, x, x, factor)


@torch.library.custom_op(f"{NAMESPACE}::nested", mutates_args=())
def nested(x: Tensor, weight: Tensor) -> Tensor:
    return torch.nn.functional.linear(custom_scale(x), weight)


@torch.library.custom_op(f"{NAMESPACE}::by_numpy", mutates_args=())
def by_numpy(x: Tensor) -> Tensor:
    return torch.from_numpy(x.cpu().numpy() * 2).to(x.device)


@by_numpy.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


@torch.library.custom_op(f"{NAMESPACE}::sum_by_numpy", mutates_args=())
def sum_by_numpy(t: list[Tensor], args: list[Tensor], _args: list[int]) -> Tensor:
    total = sum(_args) + sum(each.cpu().numpy() for each in (*t, *args))
    return torch.from_numpy(total).to(t[0].device)


@sum_by_numpy.register_fake
def _(t: list[Tensor], args: list[Tensor], _args: list[int]) -> Tensor:
    return torch.empty_like(t[0])


@torch.library.custom_op(f"{NAMESPACE}::checked", mutates_args=())
def checked(x: Tensor) -> Tensor:
    if x.shape[0] != 4:
        raise ValueError("four rows, please")
    return x * 2


@checked.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


@pytest.fixture
def aten_library() -> Iterator[torch.library.Library]:
    library = torch.library.Library("aten", "IMPL")
    yield library
    library._destroy()


def run_captured(
    function: Callable[..., Any], *args: Any, calls: int = 3, python: bool = False
) -> Any:
    """Calls an optimized function; returns its last result. All calls after the first are hits."""
    fast = trident.optimize(function, on_unsupported="raise")
    with torch.no_grad():
        for _ in range(calls):
            result = fast(*args)
    stats = fast.stats()
    assert (stats["misses"], stats["hits"]) == (1, calls - 1)
    assert ("Python code at each hit" in trident.explain(fast)) == python
    return result


def call_triton_scale(x: Tensor) -> Tensor:
    return triton_scale(x, 2.0) + 1


def call_custom_scale(x: Tensor) -> Tensor:
    return custom_scale(x) + 1  # without a fake implementation, and with a default


def call_in_place(x: Tensor) -> Tensor:
    y = x.clone()
    scale_in_place(y, 4.0)
    return y


def call_wrapped_kernel(x: Tensor) -> Tensor:
    y = torch.empty_like(x)
    launch_scale(torch.library.wrap_triton(scale_kernel), x, y, 5.0)
    return y


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (call_triton_scale, lambda x: x * 2 + 1),
        (call_custom_scale, lambda x: x * 3 + 1),
        (call_in_place, lambda x: x * 4),
        (call_wrapped_kernel, lambda x: x * 5),
    ],
)
def test_launches_inside_of_operators_are_in_the_program(
    function: Any, expected: Any, device: torch.device
) -> None:
    x = torch.randn(3, 33, device=device)
    fast = trident.optimize(function, on_unsupported="raise", graphs=False)
    with torch.no_grad():
        for _ in range(3):
            torch.testing.assert_close(fast(x), expected(x))
    stats = fast.stats()
    assert (stats["hits"], stats["launches"], stats["aten_boxed"]) == (2, 3, 0)
    assert "scale_kernel" in trident.explain(fast)


def test_operators_inside_of_operators_and_composite_ones(device: torch.device) -> None:
    x, weight = torch.randn(4, 8, device=device), torch.randn(5, 8, device=device)
    result = run_captured(nested, x, weight)
    torch.testing.assert_close(result, (x * 3) @ weight.t())


def test_a_kernel_that_cannot_be_traced_stays_a_call(device: torch.device) -> None:
    x = torch.randn(33, device=device)
    fast = trident.optimize(lambda x: by_numpy(x + 1) + 1, on_unsupported="raise")
    with torch.no_grad():
        for _ in range(3):
            torch.testing.assert_close(fast(x), (x + 1) * 2 + 1)
    assert fast.stats()["hits"] == 2 and fast.stats()["aten_boxed"] == 3
    reason = r"Python code at each hit: \S+::by_numpy, not traced because the call uses Tensor\.\w+"
    assert re.search(reason, trident.explain(fast))


def test_parameters_named_like_what_a_program_calls_its_own(device: torch.device) -> None:
    x = torch.arange(4.0, device=device)

    def function(x: Tensor, n: int) -> Tensor:
        return sum_by_numpy([x, x + 1], [x * 2], [n, 1])

    fast = trident.optimize(function, on_unsupported="raise")
    for n in (3, 4, 5, 6):
        torch.testing.assert_close(fast(x, n), x * 4 + n + 2, rtol=0, atol=0)
    assert fast.stats()["specializations"] == 1


def test_an_operators_own_error_is_the_users(device: torch.device) -> None:
    fast = trident.optimize(lambda x: checked(x))
    with torch.no_grad():
        with pytest.raises(ValueError, match="four rows, please"):
            fast(torch.randn(3, device=device))
        x = torch.randn(4, device=device)
        torch.testing.assert_close(fast(x), x * 2)


def test_a_replaced_kernel_is_a_miss(device: torch.device) -> None:
    @torch.library.custom_op(f"{NAMESPACE}::replaced", mutates_args=(), device_types=device.type)
    def replaced(x: Tensor) -> Tensor:
        return x + 1

    fast = trident.optimize(lambda x: replaced(x) * 2, on_unsupported="raise")
    x = torch.randn(5, device=device)
    with torch.no_grad():
        torch.testing.assert_close(fast(x), (x + 1) * 2)
        replaced.register_kernel(device.type)(lambda x: x + 10)
        for _ in range(2):
            torch.testing.assert_close(fast(x), (x + 10) * 2)
        with replaced.set_kernel_enabled(device.type, enabled=False):
            torch.testing.assert_close(fast(x), (x + 1) * 2)
        torch.testing.assert_close(fast(x), (x + 10) * 2)


def silu_of_python(x: Tensor) -> Tensor:
    y = torch.empty_like(x)
    launch_scale(scale_kernel, x, y, 3.0)
    return y


def call_silu(x: Tensor) -> Tensor:
    return torch.nn.functional.silu(x) + 1


def test_kernels_over_aten_are_captured_and_seen_to_come_and_go(device: torch.device) -> None:
    fast = trident.optimize(call_silu, on_unsupported="raise", graphs=False)
    x = torch.randn(33, device=device)
    silu = torch.sigmoid(x) * x + 1
    with torch.no_grad():
        for round_ in range(2):
            torch.testing.assert_close(fast(x), silu)
            library = torch.library.Library("aten", "IMPL")
            library.impl("silu", silu_of_python, KEYS[device.type])
            launches = fast.stats()["launches"]
            for _ in range(2):
                torch.testing.assert_close(fast(x), x * 3 + 1)
            assert fast.stats()["launches"] == launches + 2
            library._destroy()
            torch.testing.assert_close(fast(x), silu)
            # The second round finds both specializations again.
            assert fast.stats()["misses"] == 2, round_


def test_registering_inside_of_the_call_is_left_to_eager(device: torch.device) -> None:
    def call(x: Tensor) -> Tensor:
        library = torch.library.Library("aten", "IMPL")
        library.impl("silu", lambda x: x + 10, KEYS[device.type])
        try:
            return call_silu(x)
        finally:
            library._destroy()

    fast = trident.optimize(call)
    x = torch.randn(7, device=device)
    with torch.no_grad():
        for _ in range(2):
            torch.testing.assert_close(fast(x), x + 11)
    assert fast.stats()["fallbacks"] == 2


def test_a_library_that_goes_late_takes_no_other_kernels_with_it(device: torch.device) -> None:
    """PyTorch's list of kernels then forgets those of the library that came after it."""
    key = KEYS[device.type]
    first = torch.library.Library("aten", "IMPL")
    first.impl("silu", lambda x: x + 10, key)
    second = torch.library.Library("aten", "IMPL")
    second.impl("silu", lambda x: x + 20, key, **OVERRIDE)
    first._destroy()
    try:
        x = torch.randn(7, device=device)
        torch.testing.assert_close(run_captured(call_silu, x), x + 21)
    finally:
        second._destroy()
    torch.testing.assert_close(run_captured(call_silu, x), x.sigmoid() * x + 1)


def test_another_kernel_over_the_same_operator_is_a_miss(
    aten_library: torch.library.Library, device: torch.device
) -> None:
    fast = trident.optimize(call_silu, on_unsupported="raise")
    x = torch.randn(7, device=device)
    with torch.no_grad():
        aten_library.impl("silu", lambda x: x + 10, KEYS[device.type])
        torch.testing.assert_close(fast(x), x + 11)
        aten_library.impl("silu", lambda x: x + 20, KEYS[device.type], **OVERRIDE)
        torch.testing.assert_close(fast(x), x + 21)


def test_a_kernel_over_aten_that_cannot_be_traced_is_called(
    aten_library: torch.library.Library, device: torch.device
) -> None:
    def silu(x: Tensor) -> Tensor:
        return torch.from_numpy(x.cpu().numpy() * 7).to(x.device)

    aten_library.impl("silu", silu, KEYS[device.type])
    x = torch.randn(7, device=device)
    torch.testing.assert_close(run_captured(call_silu, x, python=True), x * 7 + 1)


def test_a_factory_over_aten_is_captured(
    aten_library: torch.library.Library, device: torch.device
) -> None:
    def full(size: Any, value: Any, **options: Any) -> Tensor:
        return torch.empty(size, **options).fill_(value + 1)

    aten_library.impl("full", full, KEYS[device.type])
    result = run_captured(lambda: torch.full((3,), 4.0, device=device))
    assert result.tolist() == [5.0, 5.0, 5.0]


@pytest.mark.parametrize("way", ["handle", "redispatch"])
def test_a_kernel_may_hand_the_call_on_to_the_one_it_replaced(
    way: str, aten_library: torch.library.Library, device: torch.device
) -> None:
    key = KEYS[device.type]
    if way == "handle":
        if not hasattr(torch.library, "get_kernel"):
            pytest.skip("this PyTorch has no torch.library.get_kernel")
        original = torch.library.get_kernel("aten::silu", key)

    def silu(keys: Any, x: Tensor) -> Tensor:
        if x.shape[0] > 8:
            return x + 100
        if way == "handle":
            return original.call_boxed(keys, x)
        backend = torch._C.DispatchKeySet(torch._C.DispatchKey.CompositeExplicitAutograd)
        return torch.ops.aten.copy_.default.redispatch(backend, torch.empty_like(x), x)

    aten_library.impl("silu", silu, key, with_keyset=True)
    small, large = torch.randn(8, device=device), torch.randn(9, device=device)
    torch.testing.assert_close(run_captured(call_silu, large), large + 101)
    expected = small.sigmoid() * small if way == "handle" else small
    torch.testing.assert_close(run_captured(call_silu, small), expected + 1)


@pytest.mark.parametrize("inside", [False, True])
def test_autocast_reaches_into_custom_operators(inside: bool, device: torch.device) -> None:
    a, b = torch.randn(4, 8, device=device), torch.randn(8, 4, device=device)

    @torch.library.custom_op(f"{NAMESPACE}::matmul_{int(inside)}", mutates_args=())
    def matmul(a: Tensor, b: Tensor) -> Tensor:
        return a @ b

    def call(a: Tensor, b: Tensor) -> Tensor:
        with torch.autocast(device.type, torch.bfloat16, enabled=inside):
            return matmul(a, b)

    fast = trident.optimize(call, on_unsupported="raise")
    with torch.no_grad(), torch.autocast(device.type, torch.bfloat16, enabled=not inside):
        expected = call(a, b)
        results = [fast(a, b) for _ in range(2)]
    assert expected.dtype == (torch.bfloat16 if inside else torch.float32)
    for result in results:
        torch.testing.assert_close(result, expected, rtol=0, atol=0)


@torch.library.custom_op(f"{NAMESPACE}::misdescribed", mutates_args=())
def misdescribed(x: Tensor, how: str) -> Tensor:
    x = torch.from_numpy(x.cpu().numpy() * 2).to(x.device)
    return {
        "right": lambda: x,
        "strides": lambda: x.t().contiguous().t(),
        "sizes": lambda: x[:, 1:].contiguous(),
        "dtype": x.half,
        "address": lambda: torch.cat([x.flatten(), x.flatten()])[1:17].view(4, 4),
    }[how]()


@misdescribed.register_fake
def _(x: Tensor, how: str) -> Tensor:
    return torch.empty_like(x)


@pytest.mark.parametrize("how", ["strides", "sizes", "dtype", "address"])
def test_results_that_are_not_what_the_fake_implementation_gives_are_an_error(
    how: str, device: torch.device
) -> None:
    """Kernels behind the operator are compiled for what the fake implementation says."""
    fast = trident.optimize(lambda x, how: misdescribed(x, how) + 1)
    x = torch.randn(4, 4, device=device)
    with torch.no_grad():
        for _ in range(2):
            with pytest.raises(RuntimeError, match="misdescribed returned a tensor"):
                fast(x, how)
            torch.testing.assert_close(fast(x, "right"), x * 2 + 1)
    assert fast.stats()["fallbacks"] == 0


def test_a_library_may_go_while_registrations_are_read() -> None:
    """Garbage collection can happen anywhere, under the registrations' own lock as well."""
    library = torch.library.Library(f"{NAMESPACE}_going", "DEF")
    library.define("nothing(Tensor x) -> Tensor")
    library.impl("nothing", lambda x: x, "CPU")
    gone = threading.Event()

    def go() -> None:
        with registrations._registrations._lock:
            library._destroy()
        gone.set()

    threading.Thread(target=go, daemon=True).start()
    assert gone.wait(30)
