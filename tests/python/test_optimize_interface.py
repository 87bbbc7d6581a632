"""The public interface: forms, options, counts, prepare and explain."""

from __future__ import annotations

import copy
import gc
import inspect
import pathlib
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
import triton
from optimize_cases import (
    STATS,
    Affine,
    Counting,
    add_one,
    double_kernel,
    line_of,
    outcomes,
    prints,
)

import trident


@pytest.fixture(autouse=True)
def _no_gradients() -> Any:
    with torch.no_grad():
        yield


def test_module_form_shares_state_and_keeps_the_type(device: torch.device) -> None:
    model = Affine().to(device)
    fast = trident.optimize(model)
    x = torch.randn(5, 4, device=device)
    for _ in range(2):
        torch.testing.assert_close(fast(x), model.expected(x))
    assert isinstance(fast, Affine)
    assert list(fast.state_dict()) == list(model.state_dict())
    assert fast.linear.weight is model.linear.weight
    assert fast.eval() is fast and not model.training
    model.linear.weight.mul_(3)
    torch.testing.assert_close(fast(x), model.expected(x))
    assert outcomes(fast)["misses"] <= 2


def test_function_and_decorator_forms() -> None:
    bare = trident.jit(add_one)
    with_options = trident.jit(on_unsupported="raise")(add_one)
    plain = trident.optimize(add_one, max_specializations=3)
    x = torch.randn(6)
    for fast in (bare, with_options, plain):
        torch.testing.assert_close([fast(x), fast(x=x)], [add_one(x)] * 2)
        assert fast.__name__ == "add_one" and fast.__wrapped__ is add_one
        assert outcomes(fast) == {"misses": 2}
        fast(x)
        assert outcomes(fast) == {"misses": 2, "hits": 1}


class Scaler:
    def __init__(self, factor: float) -> None:
        self.factor = factor

    def apply(self, x: torch.Tensor, shift: float = 0.0) -> torch.Tensor:
        return x * self.factor + shift


def test_decorated_method_gets_its_object() -> None:
    class Fast(Scaler):
        apply = trident.jit(Scaler.apply)

    x = torch.randn(3)
    for factor in (2.0, 3.0, 2.0):
        torch.testing.assert_close(Fast(factor).apply(x), x * factor)
    assert outcomes(Fast.apply) == {"misses": 2, "hits": 1}
    with pytest.raises(TypeError, match="needs the method"):
        type(Fast(1.0).apply).__call__()


class FastScaler(Scaler):
    apply = trident.optimize(Scaler.apply, max_specializations=8)


def test_a_bound_method_has_what_the_function_has() -> None:
    scaler, x = FastScaler(2.0), torch.randn(3)
    with torch.no_grad():
        scaler.apply.prepare(x, shift=1.0)
        assert scaler.apply.stats()["specializations"] == 1
        torch.testing.assert_close(scaler.apply(x, shift=1.0), x * 2 + 1)
    assert scaler.apply.stats()["hits"] == 1 and scaler.apply.stats()["misses"] == 0
    assert trident.explain(scaler.apply) == trident.explain(FastScaler.apply)
    assert list(inspect.signature(scaler.apply).parameters) == ["x", "shift"]
    assert scaler.apply.__name__ == "apply" and "Scaler.apply" in repr(scaler.apply)
    assert scaler.apply == scaler.apply != FastScaler(2.0).apply
    assert len({scaler.apply, scaler.apply}) == 1
    again = trident.optimize(scaler.apply)
    torch.testing.assert_close(again(x), x * 2)
    assert again.stats()["misses"] == 1 and scaler.apply.stats()["calls"] == 1


@pytest.mark.parametrize("clone", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_copies_of_a_bound_method_have_copies_of_its_object(clone: Callable[[Any], Any]) -> None:
    scaler, x = FastScaler(2.0), torch.randn(3)
    copied = clone(scaler.apply)
    copied.__self__.factor = 3.0
    torch.testing.assert_close([copied(x), scaler.apply(x)], [x * 3, x * 2])
    assert copied.__func__ is FastScaler.apply


def test_optimizing_an_optimized_object_starts_from_the_original() -> None:
    once = trident.optimize(add_one)
    twice = trident.optimize(once, max_specializations=1)
    x = torch.randn(3)
    torch.testing.assert_close(twice(x), add_one(x))
    assert (outcomes(once), outcomes(twice)) == ({}, {"misses": 1})


@pytest.mark.parametrize("clone", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_copies_work_on_their_own_and_keep_the_options(clone: Callable[[Any], Any]) -> None:
    fast = trident.optimize(Counting(), max_specializations=1)
    x = torch.ones(3)
    fast(x)
    other = clone(fast)
    assert type(other) is not type(fast) and isinstance(other, Counting)
    torch.testing.assert_close(other(x), 2 * 2 * x)
    assert (fast.calls, other.calls) == (1, 2)
    torch.testing.assert_close(fast.total, x)
    with pytest.warns(UserWarning, match="max_specializations=1"):
        other(x.double())


@pytest.mark.parametrize("target", [3, "model", torch.nn.Linear, None])
def test_only_modules_and_functions_can_be_optimized(target: Any) -> None:
    with pytest.raises(TypeError, match="takes an nn.Module or a function"):
        trident.optimize(target)


def test_a_class_is_told_from_its_instances() -> None:
    for decorate in (trident.optimize, trident.jit):
        with pytest.raises(TypeError, match="not the class Linear: pass an instance"):
            decorate(torch.nn.Linear)


@pytest.mark.parametrize(
    "wrap",
    [
        lambda kernel: kernel,
        triton.heuristics({"BLOCK": lambda _: 16}),
        triton.autotune([triton.Config({"BLOCK": 16})], key=["count"]),
    ],
    ids=["jit", "heuristics", "autotune"],
)
def test_a_kernel_is_not_optimized_itself(wrap: Callable[[Any], Any]) -> None:
    told = "not double_kernel, which is a Triton kernel: optimize the function or module that"
    for decorate in (trident.optimize, trident.jit, trident.jit(on_unsupported="raise")):
        with pytest.raises(TypeError, match=told):
            decorate(wrap(double_kernel))


def test_an_optimized_function_is_no_kernel() -> None:
    with pytest.raises(AttributeError, match="optimize the function that launches it"):
        triton.runtime.JITFunction(trident.jit(double_kernel.fn))


@pytest.mark.parametrize(
    ("option", "error", "told"),
    [
        ({"dynamic": "never"}, ValueError, 'use "auto", True, False, or a dictionary'),
        ({"graphs": "never"}, ValueError, "graphs='never'"),
        ({"graphs": 0}, ValueError, "graphs=0"),
        ({"on_unsupported": "ignore"}, ValueError, 'use "eager" or "raise"'),
        ({"max_specializations": 0}, ValueError, "at least 1"),
        ({"max_specializations": 2.0}, TypeError, "use an int"),
        ({"max_specialisations": 2}, TypeError, "max_specialisations"),
    ],
    ids=lambda value: str(next(iter(value.items()))) if isinstance(value, dict) else "",
)
def test_options_that_are_not_supported_are_refused(
    option: Any, error: type[Exception], told: str
) -> None:
    with pytest.raises(error, match=told):
        trident.optimize(add_one, **option)
    with pytest.raises(error, match=told):
        trident.jit(**option)(add_one)


def test_options_that_promise_nothing_more_are_accepted() -> None:
    fast = trident.optimize(add_one, dynamic=False, graphs=False)
    x = torch.randn(2)
    torch.testing.assert_close(fast(x), add_one(x))


def test_stats_have_these_keys_and_count_work(device: torch.device) -> None:
    fast = trident.optimize(Affine().to(device))
    assert set(fast.stats()) == STATS
    assert {value for key, value in fast.stats().items() if key != "driver"} == {0}
    assert fast.stats()["driver"] == device.type
    x = torch.randn(5, 4, device=device)
    fast(x)
    once = fast.stats()
    fast(x)
    twice = fast.stats()
    assert once["launches"] == 1 and once["aten_typed"] + once["aten_boxed"] > 0
    for name in ("launches", "aten_typed", "aten_boxed"):
        assert twice[name] == 2 * once[name]


def test_first_call_of_a_shape_is_a_miss_then_hits(device: torch.device) -> None:
    model = Affine().to(device)
    fast = trident.optimize(model)
    seen = []
    for rows in (2, 2, 5, 2, 5):
        x = torch.randn(rows, 4, device=device)
        torch.testing.assert_close(fast(x), model.expected(x))
        seen.append(outcomes(fast))
    assert seen == [
        {"misses": 1},
        {"misses": 1, "hits": 1},
        {"misses": 2, "hits": 1},
        {"misses": 2, "hits": 2},
        {"misses": 2, "hits": 3},
    ]
    assert fast.stats()["specializations"] == 2


collections = 0


def note_collection(phase: str, info: dict[str, int]) -> None:
    global collections
    collections += 1


def test_garbage_collections_are_no_part_of_the_call() -> None:
    fast = trident.optimize(add_one)
    x = torch.randn(3)
    threshold = gc.get_threshold()
    gc.callbacks.append(note_collection)
    gc.set_threshold(1)
    try:
        for _ in range(3):
            torch.testing.assert_close(fast(x), add_one(x))
    finally:
        gc.callbacks.remove(note_collection)
        gc.set_threshold(*threshold)
    assert collections > 0
    assert outcomes(fast) == {"misses": 1, "hits": 2}


def test_prepare_compiles_without_running() -> None:
    model = Counting()
    fast = trident.optimize(model)
    x = torch.ones(3)
    fast.prepare(x)
    assert model.calls == 0 and model.total.tolist() == [0, 0, 0] and model.total._version == 0
    assert outcomes(fast) == {} and fast.stats()["specializations"] == 1
    fast.prepare(x)
    assert fast.stats()["specializations"] == 1
    torch.testing.assert_close(fast(x), x)
    assert outcomes(fast) == {"hits": 1}
    assert model.calls == 1


def test_nothing_is_compiled_while_a_cuda_graph_is_captured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fast = trident.optimize(lambda x: x + 1)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    with torch.no_grad(), pytest.raises(trident.NotPreparedError, match=r"prepare\(\)"):
        fast(torch.ones(3))
    fast.prepare(torch.ones(3))
    with torch.no_grad():
        assert fast(torch.ones(3)).tolist() == [2, 2, 2]
    stats = fast.stats()
    assert (stats["errors"], stats["hits"], stats["misses"]) == (1, 1, 0)


def test_prepare_of_what_cannot_be_compiled_raises(capsys: pytest.CaptureFixture[str]) -> None:
    fast = trident.optimize(prints)
    with pytest.raises(trident.UnsupportedError, match="print"):
        fast.prepare(torch.ones(3))
    assert capsys.readouterr().out == ""
    with pytest.raises(trident.TridentError, match="prints cannot be prepared"):
        fast.prepare(torch.ones(3), nothing=1)


def test_explain_names_specializations_kernels_and_reasons(device: torch.device) -> None:
    fast = trident.optimize(Affine().to(device))
    for rows in (2, 2, 5):
        fast(torch.randn(rows, 4, device=device))
    text = trident.explain(fast)
    assert text.startswith("Affine: 3 calls, 1 hits, 2 misses, 0 fallbacks, 0 errors")
    assert f"float32[2x4]@{fast.linear.weight.device}" in text and "float32[5x4]" in text
    assert text.count("1 x double_kernel(") == 2
    sources = [line.split(": ")[1] for line in text.splitlines() if "host program:" in line]
    assert len(sources) == 2 and all(pathlib.Path(source).exists() for source in sources)


def test_explain_names_the_line_of_what_runs_eagerly() -> None:
    fast = trident.optimize(prints)
    with pytest.warns(UserWarning):
        fast(torch.ones(3))
    text = trident.explain(fast)
    assert "runs eagerly: the call prints" in text and line_of(prints, "print(") in text
    with pytest.raises(TypeError, match="not the result of trident.optimize"):
        trident.explain(prints)


def test_prepare_says_why_values_are_in_the_way() -> None:
    fast = trident.optimize(lambda x: x[x > 0])
    with pytest.raises(trident.UnsupportedError, match=r"size depends.*\.py:\d+"):
        fast.prepare(torch.ones(3))
