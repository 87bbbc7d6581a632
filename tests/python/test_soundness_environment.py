"""Global modes of PyTorch that change between two calls, and transforms under which a call runs."""

from __future__ import annotations

import contextlib
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from soundness_helpers import Pair, describe
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import trident


def visible(x: torch.Tensor) -> Any:
    """Shows every mode that Python code can ask for."""
    return (
        torch.ones(3) + x.sum(),
        x @ x.t(),
        torch.is_grad_enabled(),
        torch.is_autocast_enabled("cpu"),
        torch.get_default_dtype(),
        torch.are_deterministic_algorithms_enabled(),
        torch.get_float32_matmul_precision(),
    )


@contextlib.contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextlib.contextmanager
def deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


@contextlib.contextmanager
def precision(value: str) -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(value)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


MODES: dict[str, Callable[[], Any]] = {
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
    "default dtype": lambda: default_dtype(torch.float64),
    "autocast bfloat16": lambda: torch.autocast("cpu", torch.bfloat16),
    "autocast float16": lambda: torch.autocast("cpu", torch.float16),
    "deterministic": deterministic,
    "matmul precision": lambda: precision("medium"),
}


def test_modes_are_facts() -> None:
    torch.set_float32_matmul_precision(torch.get_float32_matmul_precision())  # no longer "none"
    pair = Pair(lambda: visible, lambda: torch.arange(8.0).reshape(2, 4))
    assert pair.call() == "mh"
    for name, mode in MODES.items():
        with mode():
            assert pair.call() == "mh", name
        assert pair.call() == "hh", name
    for name, mode in MODES.items():
        with mode():
            assert pair.call() == "hh", name


def test_autocast_of_a_module() -> None:
    def make() -> nn.Module:
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4))

    with torch.no_grad():
        pair = Pair(make, lambda: torch.arange(8.0).reshape(2, 4))
        assert pair.call() == "mh"
        with torch.autocast("cpu", torch.bfloat16):
            assert pair.call() == "mh"
            with torch.autocast("cpu", enabled=False):
                assert pair.call() == "hh"
        assert pair.call() == "hh"


def test_modes_that_the_call_itself_enters() -> None:
    def f(x: torch.Tensor) -> Any:
        with torch.autocast("cpu", torch.bfloat16):
            a = x @ x.t()
        with torch.no_grad():
            b = torch.is_grad_enabled()
        return a, b, torch.is_autocast_enabled("cpu"), torch.is_grad_enabled()

    pair = Pair(lambda: f, lambda: torch.arange(8.0).reshape(2, 4))
    assert pair.call() == "mh"
    assert torch.is_grad_enabled() and not torch.is_autocast_enabled("cpu")


def test_ranges_for_a_profiler() -> None:
    def f(x: torch.Tensor, n: int) -> torch.Tensor:
        with torch.profiler.record_function(f"layer {n}"):
            x = x + n
        with torch.autograd.profiler.record_function("last", "with arguments"):
            return torch.profiler.record_function("decorated")(torch.relu)(x) * 2

    pair = Pair(lambda: f, lambda: (torch.arange(-2.0, 2.0), 1))
    assert pair.call() == "mh"


def test_question_for_inference_mode() -> None:
    pair = Pair(lambda: lambda x: x * (2.0 if torch.is_inference_mode_enabled() else 3.0))
    assert pair.call() == "mh"
    with torch.inference_mode():
        assert pair.call() == "ff"


def test_outputs_of_inference_mode() -> None:
    pair = Pair(lambda: lambda x: (x * 2, x.view(2, 2), x))
    with torch.inference_mode():
        inside = torch.arange(4.0)
        assert pair.call(2, lambda: inside.clone()) == "mh"
    outside = torch.arange(4.0)
    with torch.inference_mode():
        assert pair.call(2, lambda: outside) == "mh"


def test_gradients_are_eagers() -> None:
    def make() -> nn.Module:
        torch.manual_seed(0)
        return nn.Linear(4, 4)

    pair = Pair(make, lambda: torch.arange(8.0).reshape(2, 4))
    assert pair.call() == "ff"
    for arm in (pair.fast, pair.eager):
        arm(torch.arange(8.0).reshape(2, 4)).sum().backward()
    torch.testing.assert_close(pair.target.weight.grad, pair.eager.weight.grad)
    with torch.no_grad():
        assert pair.call() == "mh"
    assert pair.call() == "ff"
    pair.change(lambda m: m.requires_grad_(False))
    assert pair.call() == "mh"


def test_gradients_that_the_call_enables() -> None:
    class M(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.enable_grad():
                return self.weight * x

    with torch.no_grad():
        assert Pair(M).call() == "ff"


class CountingDispatch(TorchDispatchMode):
    calls = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        CountingDispatch.calls += 1
        return func(*args, **(kwargs or {}))


class CountingFunction(TorchFunctionMode):
    calls = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        CountingFunction.calls += 1
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("mode", [CountingDispatch, CountingFunction])
def test_modes_that_see_operators_fall_back(mode: Any) -> None:
    with torch.no_grad():
        pair = Pair(lambda: lambda x: x * 2 + 1)
        assert pair.call() == "mh"
        mode.calls = 0
        with mode():
            before = pair.fast.stats()
            pair.fast(torch.ones(4))
            assert pair.fast.stats()["fallbacks"] == before["fallbacks"] + 1
        assert mode.calls >= 2
        assert pair.call() == "hh"


def test_default_device_falls_back() -> None:
    with torch.no_grad():
        pair = Pair(lambda: lambda x: x + torch.ones(4).sum())
        assert pair.call() == "mh"
        with torch.device("cpu"):
            assert pair.call() == "ff"
        assert pair.call() == "hh"


def test_function_transforms_fall_back() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return (x * x).sum()

    fast = trident.optimize(f)
    x = torch.arange(4.0)
    with torch.no_grad():
        fast(x)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for transform in (torch.func.grad, torch.func.vmap, torch.func.jacrev, torch.func.hessian):
            y = x.reshape(2, 2) if transform is torch.func.vmap else x
            torch.testing.assert_close(transform(fast)(y), transform(f)(y))
        got, expected = (torch.func.jvp(g, (x,), (torch.ones(4),)) for g in (fast, f))
        torch.testing.assert_close(got, expected)


def test_forward_mode_differentiation_falls_back() -> None:
    import torch.autograd.forward_ad as forward_ad

    fast = trident.optimize(lambda x: x * 3)
    with torch.no_grad():
        fast(torch.ones(2))
    with forward_ad.dual_level(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dual = forward_ad.make_dual(torch.ones(2), torch.full((2,), 5.0))
        tangent = forward_ad.unpack_dual(fast(dual)).tangent
    assert tangent is not None and tangent.tolist() == [15.0, 15.0]


def test_torch_jit_trace_sees_every_operator() -> None:
    class M(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2 + 1

    fast = trident.optimize(M())
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fast(torch.ones(4))
        traced = torch.jit.trace(lambda x: fast(x), torch.ones(4))
        assert traced(torch.full((4,), 3.0)).tolist() == [7.0] * 4


def test_make_fx_sees_every_operator() -> None:
    from torch.fx.experimental.proxy_tensor import make_fx

    fast = trident.optimize(lambda x: x * 2 + 1)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fast(torch.ones(4))
        graph = make_fx(lambda x: fast(x))(torch.ones(4))
        assert graph(torch.full((4,), 3.0)).tolist() == [7.0] * 4


def test_threads_call_and_change_modes() -> None:
    def f(x: torch.Tensor) -> Any:
        return x * 2, torch.is_grad_enabled()

    fast = trident.optimize(f)
    problems: list[Any] = []

    def work(number: int) -> None:
        for step in range(40):
            x = torch.full((4,), float(number + step))
            mode: Any = torch.no_grad() if (number + step) % 2 else contextlib.nullcontext()
            with mode:
                got, expected = fast(x), f(x)
            if describe(got) != describe(expected):
                problems.append((number, step))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems
    stats = fast.stats()
    assert stats["calls"] == 160 == stats["hits"] + stats["misses"]
    assert stats["specializations"] == 2


def test_threads_and_a_changing_module() -> None:
    """A result belongs to some state that the module had while the call ran."""

    class M(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = 1.0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.scale

    module = M()
    fast = trident.optimize(module)
    with torch.no_grad():
        for scale in (1.0, 2.0):
            module.scale = scale
            fast(torch.ones(2))
    stop = threading.Event()
    wrong: list[float] = []

    def call() -> None:
        with torch.no_grad():
            while not stop.is_set():
                value = fast(torch.ones(2))[0].item()
                if value not in (1.0, 2.0):
                    wrong.append(value)

    threads = [threading.Thread(target=call) for _ in range(2)]
    for thread in threads:
        thread.start()
    for step in range(300):
        module.scale = 1.0 + step % 2
    stop.set()
    for thread in threads:
        thread.join()
    assert not wrong
    with torch.no_grad():
        assert fast(torch.ones(2))[0].item() == module.scale


@contextlib.contextmanager
def float32_settings() -> Iterator[None]:
    settings = [
        torch.backends.cudnn.conv,
        torch.backends.cudnn.rnn,
        torch.backends.cuda.matmul,
        torch.backends.mkldnn.matmul,
    ]
    before = [each.fp32_precision for each in settings]
    try:
        yield
    finally:
        for each, value in zip(settings, before, strict=True):
            each.fp32_precision = value


def test_float32_precision_of_single_operators_is_a_fact() -> None:
    def shown(x: torch.Tensor) -> Any:
        return x + 1, torch.backends.cudnn.rnn.fp32_precision

    with float32_settings():
        torch.backends.cudnn.conv.fp32_precision = "ieee"
        torch.backends.cudnn.rnn.fp32_precision = "ieee"
        pair = Pair(lambda: shown, lambda: torch.arange(4.0))
        assert pair.call() == "mh"
        # torch's own summary, allow_tf32, raises an error for operators set apart.
        torch.backends.cudnn.rnn.fp32_precision = "tf32"
        assert pair.call() == "mh"
        torch.backends.cudnn.rnn.fp32_precision = "ieee"
        assert pair.call() == "hh"
        torch.backends.mkldnn.matmul.fp32_precision = "bf16"
        assert pair.call() == "mh"


class Inferring(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(4, 4)
        self.seen: Any = None

    @torch.inference_mode()
    def forward(self, x: torch.Tensor) -> Any:
        self.seen = self.linear(x)
        return self.seen * 2, x[0], torch.zeros(2)


@pytest.mark.parametrize("mode", [contextlib.nullcontext, torch.no_grad, torch.inference_mode])
def test_results_made_in_inference_mode(mode: Any) -> None:
    with mode():
        pair = Pair(Inferring, lambda: torch.ones(2, 4))
        assert pair.call(4) == "mmhh"
        assert pair.target.seen.is_inference()


def test_results_of_which_some_are_made_in_inference_mode() -> None:
    def function(x: torch.Tensor) -> Any:
        with torch.inference_mode():
            y = x + 1
        return y, x * 2

    assert Pair(lambda: function).call(2) == "ff"
