"""The public interface: forms, options, outcomes, prepare, explain, limits, and bad input."""

from __future__ import annotations

import copy
import gc
import inspect
import pathlib
import pickle
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

import trident

STATS = {
    *("calls", "hits", "misses", "fallbacks", "errors", "evictions"),
    *("specializations", "launches", "aten_typed", "aten_boxed", "driver"),
}


@triton.jit
def double_kernel(x, out, count, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < count
    tl.store(out + offsets, tl.load(x + offsets, mask=mask) * 2.0, mask=mask)


@triton.jit
def broken_kernel(x, out, count, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(out + offsets, tl.load(x + offsets) + tl.there_is_no_such_function(x))


def double(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    double_kernel[(triton.cdiv(x.numel(), 64),)](x, out, x.numel(), BLOCK=64)
    return out


def pick(x: torch.Tensor, broken: bool) -> torch.Tensor:
    out = torch.empty_like(x)
    kernel = broken_kernel if broken else double_kernel
    kernel[(triton.cdiv(x.numel(), 64),)](x, out, x.numel(), BLOCK=64)
    return out


class Affine(torch.nn.Module):
    """2 * (x @ weight.T + bias), the doubling by a Triton kernel. x: (rows, 4)."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return double(self.linear(x))

    def expected(self, x: torch.Tensor) -> torch.Tensor:
        return 2 * self.linear(x)


class Counting(torch.nn.Module):
    """Counts its calls in an attribute and sums its inputs in a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.register_buffer("total", torch.zeros(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        self.total += x
        return self.total * self.calls


def add_one(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(x) + 1


def prints(x: torch.Tensor) -> torch.Tensor:
    y = x + 1
    print("seen")
    return y


def reads_the_value(x: torch.Tensor) -> torch.Tensor:
    if x.sum() > 0:
        return x + 1
    return x - 1


def line_of(function: Callable[..., Any], text: str) -> str:
    """``file.py:line`` of the line of a function that holds `text`."""
    lines, first = inspect.getsourcelines(function)
    offset = next(index for index, line in enumerate(lines) if text in line)
    return f"{pathlib.Path(__file__).name}:{first + offset}"


def outcomes(fast: Any) -> dict[str, int]:
    """The counts of outcomes that are not 0, without `calls`, which must be their sum."""
    stats = fast.stats()
    counts = {name: stats[name] for name in ("hits", "misses", "fallbacks", "errors")}
    assert sum(counts.values()) == stats["calls"]
    return {name: count for name, count in counts.items() if count}


@pytest.fixture(autouse=True)
def _no_gradients() -> Any:
    with torch.no_grad():
        yield


# --- forms


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


def test_decorated_method_gets_its_object() -> None:
    class Scaler:
        def __init__(self, factor: float) -> None:
            self.factor = factor

        @trident.jit
        def apply(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.factor

    x = torch.randn(3)
    for factor in (2.0, 3.0, 2.0):
        torch.testing.assert_close(Scaler(factor).apply(x), x * factor)
    assert outcomes(Scaler.apply) == {"misses": 2, "hits": 1}


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


@pytest.mark.parametrize(
    ("option", "error", "told"),
    [
        ({"dynamic": "never"}, ValueError, 'use "auto", True or False'),
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


# --- outcomes


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


def test_outcomes_exclude_each_other() -> None:
    def mixed(x: torch.Tensor, what: str = "") -> torch.Tensor:
        if what == "print":
            print("seen")
        if what == "raise":
            raise KeyError("the user's own")
        return x + 1

    fast = trident.optimize(mixed)
    x = torch.randn(3)
    fast(x)
    fast(x)
    assert outcomes(fast) == {"misses": 1, "hits": 1}
    with pytest.warns(UserWarning, match="runs eagerly"):
        fast(x, "print")
    fast(x, "print")
    assert outcomes(fast) == {"misses": 1, "hits": 1, "fallbacks": 2}
    for _ in range(2):
        with pytest.raises(KeyError, match="the user's own"):
            fast(x, "raise")
    fast(x)
    assert outcomes(fast) == {"misses": 1, "hits": 2, "fallbacks": 2, "errors": 2}


# --- prepare and explain


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


# --- what is not supported


def test_fallback_gives_eagers_result_and_warns_once(capsys: pytest.CaptureFixture[str]) -> None:
    fast = trident.optimize(prints)
    x = torch.randn(3)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for size in (3, 3, 2):
            torch.testing.assert_close(fast(x[:size]), x[:size] + 1)
    assert capsys.readouterr().out == "seen\n" * 3
    (warning,) = caught
    message = str(warning.message)
    assert "prints runs eagerly: " in message and "print" in message
    assert line_of(prints, "print(") in message
    assert warning.filename == __file__  # where the optimized object was called
    assert outcomes(fast) == {"fallbacks": 3}


def test_each_reason_warns_once_for_itself() -> None:
    def either(x: torch.Tensor, branch: bool) -> torch.Tensor:
        return reads_the_value(x) if branch else prints(x)

    fast = trident.optimize(either)
    x = torch.ones(3)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for branch in (True, False, True, False):
            torch.testing.assert_close(fast(x, branch), x + 1)
    messages = [str(warning.message) for warning in caught]
    assert len(messages) == 2
    assert line_of(reads_the_value, "x.sum()") in messages[0]
    assert "depends on the value of a tensor" in messages[0]
    assert line_of(prints, "print(") in messages[1]


def test_raise_refuses_before_anything_runs(capsys: pytest.CaptureFixture[str]) -> None:
    fast = trident.optimize(prints, on_unsupported="raise")
    for count in (1, 2):
        with pytest.raises(trident.UnsupportedError) as raised:
            fast(torch.ones(3))
        assert "print" in raised.value.reason
        assert raised.value.where is not None
        assert raised.value.where.endswith(line_of(prints, "print("))
        assert str(raised.value) == f"{raised.value.reason} (at {raised.value.where})"
        assert outcomes(fast) == {"errors": count}
    assert capsys.readouterr().out == ""


def test_unsupported_error_without_a_place() -> None:
    error = trident.UnsupportedError("a reason")
    assert (error.reason, error.where, str(error)) == ("a reason", None, "a reason")
    assert issubclass(trident.UnsupportedError, trident.TridentError)
    assert issubclass(trident.BuildError, trident.TridentError)


# --- the bound


def test_specializations_are_bounded_and_the_one_used_longest_ago_goes() -> None:
    fast = trident.optimize(add_one, max_specializations=2, dynamic=False)

    def call(size: int) -> dict[str, int]:
        torch.testing.assert_close(fast(torch.ones(size)), torch.full((size,), 2.0))
        return outcomes(fast)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        call(1)
        call(2)
        assert call(1) == {"misses": 2, "hits": 1}
    with pytest.warns(UserWarning, match="max_specializations=2.*trident.explain") as caught:
        assert call(3) == {"misses": 3, "hits": 1}  # 2 goes
    assert [warning.filename for warning in caught] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert call(1) == {"misses": 3, "hits": 2}
        assert call(2) == {"misses": 4, "hits": 2}  # 3 goes, without a second warning
        assert call(1) == {"misses": 4, "hits": 3}
    assert fast.stats()["specializations"] == 2 and fast.stats()["evictions"] == 2


# --- bad input


def test_wrong_arguments_raise_as_eager_and_spoil_nothing() -> None:
    fast = trident.optimize(add_one)
    x = torch.randn(3)
    fast(x)
    for args, kwargs in (((), {}), ((x,), {"y": x}), ((x, x), {}), ((), {"wrong": x})):
        with pytest.raises(TypeError) as mine:
            fast(*args, **kwargs)
        with pytest.raises(TypeError) as theirs:
            add_one(*args, **kwargs)
        assert str(mine.value) == str(theirs.value)
    torch.testing.assert_close(fast(x), add_one(x))
    assert outcomes(fast) == {"misses": 1, "hits": 1, "errors": 4}


def test_shapes_that_do_not_fit_raise_as_eager(device: torch.device) -> None:
    model = torch.nn.Linear(4, 3).to(device)
    fast = trident.optimize(model)
    x = torch.randn(2, 4, device=device)
    fast(x)
    with pytest.raises(RuntimeError) as mine:
        fast(x[:, :3])
    with pytest.raises(RuntimeError) as theirs:
        model(x[:, :3])
    assert str(mine.value) == str(theirs.value)
    torch.testing.assert_close(fast(x), model(x))
    assert outcomes(fast) == {"misses": 1, "hits": 1, "errors": 1}


def test_deleted_weight_raises_as_eager_until_it_is_back(device: torch.device) -> None:
    model = torch.nn.Linear(4, 3).to(device)
    fast = trident.optimize(model)
    x = torch.randn(2, 4, device=device)
    expected = fast(x)
    weight = model.weight
    del model.weight
    with pytest.raises(AttributeError, match="weight"):
        fast(x)
    model.weight = weight
    torch.testing.assert_close(fast(x), expected)
    assert outcomes(fast)["errors"] == 1


def test_kernel_that_does_not_compile_raises_and_spoils_nothing(device: torch.device) -> None:
    fast = trident.optimize(pick)
    x = torch.randn(64, device=device)
    for count in (1, 2):
        with pytest.raises(Exception, match="there_is_no_such_function"):
            fast(x, True)
        assert outcomes(fast)["errors"] == count
    for _ in range(2):
        torch.testing.assert_close(fast(x, False), 2 * x)
    assert outcomes(fast) == {"errors": 2, "misses": 1, "hits": 1}


def test_missing_compiler_is_a_build_error_that_says_what_to_do(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Counting()
    fast = trident.optimize(model)
    x = torch.ones(3)
    monkeypatch.setenv("TRIDENT_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("CXX", "/nonexistent")
    for count in (1, 2):
        with pytest.raises(trident.BuildError, match="'/nonexistent'.*apt-get install.*CXX"):
            fast(x)
        assert outcomes(fast) == {"errors": count}
    assert model.calls == 0  # an error of the machine is not a reason to run eagerly
    monkeypatch.delenv("CXX")
    torch.testing.assert_close(fast(x), x)
    assert outcomes(fast) == {"errors": 2, "misses": 1}


def test_cache_folder_that_cannot_be_written_does_not_matter(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("TRIDENT_CACHE_DIR", str(tmp_path / "file" / "cache"))
    fast = trident.optimize(add_one)
    x = torch.randn(7)
    for _ in range(2):
        torch.testing.assert_close(fast(x), add_one(x))
    assert outcomes(fast) == {"misses": 1, "hits": 1}
