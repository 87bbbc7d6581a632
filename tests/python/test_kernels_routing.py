"""Routing: which launches reach the handler, what runs above it, and isolation between threads."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from triton import knobs
from triton.compiler.compiler import ASTSource
from triton.runtime.autotuner import Autotuner
from triton.runtime.interpreter import InterpretedFunction
from triton.runtime.jit import JITFunction

from trident.errors import UnsupportedError
from trident.kernels import (
    DEFAULT_TARGET,
    NeedsTuning,
    is_interpreted,
    route_launches,
    tuning_key,
)


@triton.jit
def plain(x, n, B: tl.constexpr = 16, EVEN: tl.constexpr = False):
    i = tl.arange(0, B)
    tl.store(x + i, i, mask=i < n)


class Calls:
    """A handler that notes what reaches it."""

    def __init__(self) -> None:
        self.seen: list[tuple[Any, tuple[Any, ...], dict[str, Any], Any]] = []

    def __call__(
        self, kernel: Any, args: tuple[Any, ...], kwargs: dict[str, Any], grid: Any
    ) -> str:
        self.seen.append((kernel, args, kwargs, grid))
        return "handled"


def test_launch_reaches_the_handler_with_its_arguments() -> None:
    calls, x = Calls(), torch.zeros(4)
    with route_launches(calls):
        assert plain[(2,)](x, 4, B=32, num_warps=2) == "handled"
        plain.run(x, 4, grid=(3,), warmup=False)
    assert calls.seen[0] == (plain, (x, 4), {"B": 32, "num_warps": 2}, (2,))
    assert calls.seen[1] == (plain, (x, 4), {}, (3,))
    assert x.eq(0).all()


def test_classes_are_restored() -> None:
    before = [vars(owner)["run"] for owner in (JITFunction, InterpretedFunction, Autotuner)]
    with pytest.raises(ZeroDivisionError), route_launches(Calls()):
        assert vars(JITFunction)["run"] is not before[0]
        raise ZeroDivisionError
    after = [vars(owner)["run"] for owner in (JITFunction, InterpretedFunction, Autotuner)]
    assert all(a is b for a, b in zip(before, after, strict=True))


def test_nested_routing_uses_the_inner_handler() -> None:
    outer, inner = Calls(), Calls()
    with route_launches(outer):
        with route_launches(inner):
            plain[(1,)](torch.zeros(4), 4)
        plain[(1,)](torch.zeros(4), 4)
    assert len(outer.seen) == len(inner.seen) == 1


def test_somebody_elses_wrapper_survives(monkeypatch: pytest.MonkeyPatch) -> None:
    calls, wrapped = Calls(), []
    kind = InterpretedFunction if is_interpreted(plain) else JITFunction
    before = vars(kind)["run"]
    with route_launches(calls):
        ours = kind.run

        def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
            wrapped.append(self)
            return ours(self, *args, **kwargs)

        kind.run = wrapper
    assert kind.run is wrapper
    with route_launches(calls):
        plain[(1,)](torch.zeros(4), 4)
    assert wrapped == [plain] and len(calls.seen) == 1
    kind.run = ours
    with route_launches(calls):
        pass
    assert vars(kind)["run"] is before


def test_other_threads_are_not_routed() -> None:
    calls = Calls()
    inside, done = threading.Event(), threading.Event()
    launched: list[Any] = []

    def other() -> None:
        inside.wait(30)
        x = torch.zeros(4)
        try:
            plain[(1,)](x, 4)
            launched.append(x)
        except Exception as error:  # without a GPU and outside of interpreter mode Triton refuses
            launched.append(error)
        done.set()

    thread = threading.Thread(target=other)
    thread.start()
    with route_launches(calls):
        inside.set()
        assert done.wait(60)
    thread.join()
    assert calls.seen == []
    if is_interpreted(plain):
        assert launched[0].tolist() == [0, 1, 2, 3]
    elif not torch.cuda.is_available():
        assert isinstance(launched[0], RuntimeError)


def test_two_threads_route_to_their_own_handlers() -> None:
    handlers = [Calls(), Calls()]
    barrier = threading.Barrier(2)

    def work(index: int) -> None:
        with route_launches(handlers[index]):
            barrier.wait(30)
            for _ in range(50):
                plain[(index + 1,)](torch.zeros(4), index)
            barrier.wait(30)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for index, handler in enumerate(handlers):
        assert len(handler.seen) == 50
        assert {seen[3] for seen in handler.seen} == {(index + 1,)}


def test_warmup_passes_through(monkeypatch: pytest.MonkeyPatch) -> None:
    calls, warmed = Calls(), []
    kind = InterpretedFunction if is_interpreted(plain) else JITFunction

    def original(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> None:
        warmed.append((grid, warmup))

    monkeypatch.setattr(kind, "run", original)
    with route_launches(calls):
        plain.run(torch.zeros(4), 4, grid=(1,), warmup=True)
        plain.warmup(torch.float32, 4, grid=(2,))
    assert warmed == [((1,), True), ((2,), True)] and calls.seen == []


def test_warmup_sees_types_and_alignment_of_a_traces_tensors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kind = InterpretedFunction if is_interpreted(plain) else JITFunction
    warmed: list[Any] = []

    def original(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> None:
        warmed.append((*args, kwargs["B"]))

    monkeypatch.setattr(kind, "run", original)
    x = torch.zeros(4, dtype=torch.float16)
    with route_launches(Calls(), lambda tensor: tensor is not x):
        plain.warmup(x, 4, B=8, grid=(1,))
        plain.warmup(torch.zeros(4), 4, B=8, grid=(1,))
    (held, four, eight), (other, *_) = warmed
    assert (held.dtype, held.data_ptr() % 16 == 0, four, eight) == (torch.float16, False, 4, 8)
    assert (other.dtype, other.data_ptr()) == (torch.float32, 0)


@pytest.mark.skipif(is_interpreted(plain), reason="nothing is compiled under TRITON_INTERPRET=1")
def test_launch_of_a_compiled_kernel_is_one_of_its_function() -> None:
    source = ASTSource(
        plain,
        {"x": "*fp32", "n": "i32", "B": "constexpr", "EVEN": "constexpr"},
        {(2,): 64, (3,): True},
        {},
    )
    compiled = triton.compile(source, target=DEFAULT_TARGET, options={"num_warps": 8})
    calls, x = Calls(), torch.zeros(4)
    with route_launches(calls):
        compiled[(2, 1, 1)](x, 4, 16, False)
        with pytest.raises(UnsupportedError, match="takes 4 arguments"):
            compiled[(2, 1, 1)](x, 4)
        with pytest.raises(UnsupportedError, match="stream"):
            compiled[(2, 1, 1)](x, 4, 16, False, stream=0)
    (seen,) = calls.seen
    assert seen[0] is plain and seen[3] == (2, 1, 1)
    # What it was compiled with counts, not what it is given.
    assert seen[2] == {"x": x, "n": 4, "B": 64, "EVEN": True, "num_warps": 8}


def heuristics(kernel: Any) -> Any:
    return triton.heuristics({"EVEN": lambda args: args["n"] % args["B"] == 0})(kernel)


def test_heuristics_see_the_values_of_the_trace() -> None:
    calls = Calls()
    with route_launches(calls):
        heuristics(plain)[(1,)](torch.zeros(4), 32, B=16)
        heuristics(plain)[(1,)](torch.zeros(4), n=33, B=16)
    assert [seen[2]["EVEN"] for seen in calls.seen] == [True, False]


@pytest.mark.parametrize("tuner_outside", [True, False])
def test_one_config_autotuner_runs_its_hook_and_goes_on(tuner_outside: bool) -> None:
    hooked: list[Any] = []
    config = triton.Config({"B": 64}, num_warps=2, pre_hook=lambda args: hooked.append(args["x"]))
    tune = triton.autotune([config], key=["n"])
    kernel = tune(heuristics(plain)) if tuner_outside else None
    calls, x = Calls(), torch.zeros(4)
    if kernel is None:
        # A heuristic above the tuner cannot see the tuner's values.
        even = triton.heuristics({"EVEN": lambda args: args["n"] % 64 == 0})
        kernel = even(tune(plain))
    with route_launches(calls):
        kernel[(1,)](x, 64)
    (seen,) = calls.seen
    assert seen[0] is plain and seen[3] == (1,)
    assert seen[2]["B"] == 64 and seen[2]["num_warps"] == 2 and seen[2]["EVEN"] is True
    assert hooked == [x]


def never_bench(kernel_call: Any, quantiles: Any) -> Any:
    raise AssertionError("a trace must not benchmark")


def tuned_kernel() -> Any:
    configs = [triton.Config({"B": 16}), triton.Config({"B": 32}, num_warps=8)]
    return triton.autotune(configs, key=["n"], do_bench=never_bench)(plain)


def test_untuned_key_needs_tuning() -> None:
    kernel, calls = tuned_kernel(), Calls()
    with route_launches(calls), pytest.raises(NeedsTuning, match="plain") as caught:
        kernel[(1,)](torch.zeros(4), 5)
    assert isinstance(caught.value, UnsupportedError) and __file__ in str(caught.value.where)
    assert calls.seen == [] and kernel.cache == {}


def test_tuned_key_uses_the_winner() -> None:
    kernel, calls, x = tuned_kernel(), Calls(), torch.zeros(4)
    # The key as Triton's own run computes it: found by letting it look the key up.
    looked_up: list[Any] = []

    class Spy(dict):  # type: ignore[type-arg]
        def __contains__(self, key: object) -> bool:
            looked_up.append(key)
            return True

        def __getitem__(self, key: object) -> Any:
            return kernel.configs[1]

    kernel.cache = Spy()
    with route_launches(calls):
        kernel[(1,)](x, n=5)
    assert looked_up == [tuning_key(kernel, (x,), {"n": 5})] * 2
    assert looked_up[0] == (5, "torch.float32")
    kernel.cache = {looked_up[0]: kernel.configs[1]}
    with route_launches(calls):
        kernel[(1,)](x, 5)
        with pytest.raises(NeedsTuning):
            kernel[(1,)](x, 6)
        with pytest.raises(NeedsTuning):
            kernel[(1,)](x.half(), 5)
    assert [seen[2]["B"] for seen in calls.seen] == [32, 32]
    assert calls.seen[1][2]["num_warps"] == 8
    assert kernel.nargs is None


def test_the_users_pruning_is_left_to_an_eager_call() -> None:

    def prune(configs: list[Any], named: dict[str, Any], **kwargs: Any) -> list[Any]:
        raise AssertionError("no call of the trace's")

    configs = [triton.Config({"B": 16}), triton.Config({"B": 32})]
    kernel = triton.autotune(
        configs,
        key=["n"],
        prune_configs_by={"early_config_prune": prune},
        do_bench=never_bench,
    )(plain)
    calls, x = Calls(), torch.zeros(4)
    with route_launches(calls):
        with pytest.raises(NeedsTuning):
            kernel[(1,)](x, n=5)
        kernel.cache[5, "torch.float32"] = configs[1]
        kernel[(1,)](x, n=5)
    assert [call[2]["B"] for call in calls.seen] == [32] and kernel.nargs is None


def test_without_a_gpu_the_first_configuration_is_as_good_as_any() -> None:
    configs = [triton.Config({"B": 16}), triton.Config({"B": 32})]
    kernel, calls = triton.autotune(configs, key=["n"])(plain), Calls()
    with route_launches(calls):
        kernel[(1,)](torch.zeros(4), 5)
    assert calls.seen[0][2]["B"] == 16
    assert kernel.cache == {}  # a GPU would tune it


def test_subclasses_of_the_autotuner_do_not_benchmark_either() -> None:
    class OwnTuner(Autotuner):
        def run(self, *args: Any, **kwargs: Any) -> Any:
            self.nargs = dict(zip(self.arg_names, args, strict=False))
            timings = [self._bench(*args, config=each, **kwargs) for each in self.configs]
            return self.fn.run(*args, **kwargs, **self.configs[len(timings) - 1].all_kwargs())

    configs = [triton.Config({"B": 16}), triton.Config({"B": 32})]
    kernel = OwnTuner(plain, plain.arg_names, configs, ["n"], None, None, do_bench=never_bench)
    calls, x = Calls(), torch.zeros(4)
    with route_launches(calls), pytest.raises(NeedsTuning) as caught:
        kernel[(1,)](x, 5)
    problem = caught.value
    assert problem.reason.startswith("kernel plain") and kernel.nargs is None
    assert problem.tuner is kernel and problem.launch_kwargs["grid"] == (1,)


def test_autotuner_keeps_no_tensors_after_an_error() -> None:
    kernel = triton.autotune([triton.Config({"B": 16})], key=["n"])(plain)

    def fail(*_: Any) -> None:
        raise ValueError("no")

    with route_launches(fail), pytest.raises(ValueError, match="no"):
        kernel[(1,)](torch.zeros(4), 5)
    assert kernel.nargs is None


def test_hooks_are_left_to_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    calls, x = Calls(), torch.zeros(4)

    def hook(*_: Any, **__: Any) -> None:
        return None

    def expect(name: str) -> None:
        with route_launches(calls), pytest.raises(UnsupportedError, match=name):
            plain[(1,)](x, 4)

    knobs.runtime.launch_enter_hook.add(hook)
    try:
        expect("launch_enter_hook")
    finally:
        knobs.runtime.launch_enter_hook.remove(hook)
    with monkeypatch.context() as patch:
        patch.setattr(knobs.runtime, "jit_cache_hook", hook)
        expect("jit_cache_hook")
    with monkeypatch.context() as patch:
        patch.setattr(knobs.runtime, "debug", True)
        expect("debug")
    with monkeypatch.context() as patch:
        patch.setattr(knobs.compilation, "instrumentation_mode", "consan")
        expect("instrumentation_mode")
    plain.add_pre_run_hook(hook)
    try:
        expect("pre_run_hooks")
    finally:
        plain.pre_run_hooks.clear()
    with route_launches(calls):
        plain[(1,)](x, 4)
    assert len(calls.seen) == 1
