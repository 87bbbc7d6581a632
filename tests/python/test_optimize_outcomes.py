"""Outcomes of calls: fallbacks and what is refused, the bound, and bad input."""

from __future__ import annotations

import pathlib
import warnings
from typing import Any

import pytest
import torch
from optimize_cases import (
    Counting,
    add_one,
    line_of,
    outcomes,
    pick,
    prints,
    reads_the_value,
)

import trident
from trident.optimize import optimizer_of

OUTSIDE: dict[str, float] = {}


@pytest.fixture(autouse=True)
def _no_gradients() -> Any:
    with torch.no_grad():
        yield


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


@pytest.mark.parametrize("dtype", [torch.int64, torch.int8, torch.float64, torch.float32])
@pytest.mark.parametrize(
    "function",
    [lambda x, n: x * n.item(), lambda x, n: x[int(n) :], lambda x, n: x[: n.long()]],
)
def test_a_number_in_a_tensor_is_read_at_each_call(function: Any, dtype: torch.dtype) -> None:
    fast = trident.optimize(function)
    x = torch.arange(5.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number in (2, 3, 2):
            n = torch.tensor(number, dtype=dtype)
            assert torch.equal(fast(x, n), function(x, n))
    assert outcomes(fast) == {"fallbacks": 3}


def test_an_address_in_a_reason_does_not_make_it_another_one() -> None:
    fast = trident.optimize(prints)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for address in (0x7F10, 0x7F20):
            problem = trident.UnsupportedError(f"it involves <object at {address:#x}>", "a.py:1")
            optimizer_of(fast).warnings.ran_eagerly(problem)
    (message,) = [str(each.message) for each in caught]
    assert "<object at 0x7f10> (at a.py:1)" in message
    assert message.partition("eagerly: ")[2] in trident.explain(fast)


def test_functions_that_compile_are_left_to_eager_which_works_as_before() -> None:
    def branches(x: torch.Tensor, name: str) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,))

    fast, x = trident.optimize(branches), torch.ones(3)
    with pytest.warns(UserWarning, match="uses cond, which compiles") as caught:
        for name in "abc":
            torch.testing.assert_close(fast(x, name), x + 1)
            torch.testing.assert_close(fast(-x, name), -x - 1)
    assert len(caught) == 1
    assert outcomes(fast) == {"fallbacks": 6}
    torch.testing.assert_close(branches(x, "d"), x + 1)


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


def test_error_of_the_user_is_not_logged_as_one_of_the_trace(
    caplog: pytest.LogCaptureFixture,
) -> None:
    fast = trident.optimize(lambda x, y: x @ y)
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        fast(torch.ones(2, 3), torch.ones(4, 2))
    assert not [each for each in caplog.records if each.levelname == "ERROR"]
    assert fast(torch.ones(2, 3), torch.ones(3, 2)).shape == (2, 2)


def test_unsupported_error_without_a_place() -> None:
    error = trident.UnsupportedError("a reason")
    assert (error.reason, error.where, str(error)) == ("a reason", None, "a reason")
    assert issubclass(trident.UnsupportedError, trident.TridentError)
    assert issubclass(trident.BuildError, trident.TridentError)


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


def test_a_call_that_raises_is_captured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    fast, x = trident.optimize(lambda x, factor: x * OUTSIDE[factor]), torch.ones(3)
    attempts = optimizer_of(fast)._attempts
    captured: list[Any] = []
    compile_ = attempts.compile

    def counted(*args: Any) -> Any:
        captured.append(args)
        return compile_(*args)

    monkeypatch.setattr(attempts, "compile", counted)
    for _ in range(4):
        for factor in ("half", "third"):
            with pytest.raises(KeyError, match=factor):
                fast(x, factor)
    assert outcomes(fast) == {"errors": 8} and len(captured) == 2


def test_a_call_that_raises_no_more_is_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    fast, x = trident.optimize(lambda x: x * OUTSIDE["factor"]), torch.ones(3)
    for _ in range(2):
        with pytest.raises(KeyError):
            fast(x)
    monkeypatch.setitem(OUTSIDE, "factor", 3.0)
    for _ in range(2):
        torch.testing.assert_close(fast(x), x * 3)
    assert outcomes(fast) == {"errors": 2, "misses": 1, "hits": 1}
    monkeypatch.delitem(OUTSIDE, "factor")
    with pytest.raises(KeyError):
        fast(x)
    assert outcomes(fast) == {"errors": 3, "misses": 1, "hits": 1}


def test_each_error_says_why_the_call_ran_eagerly() -> None:
    def prints_first(x: torch.Tensor) -> torch.Tensor:
        print(end="")
        raise ValueError("the user's own")

    fast = trident.optimize(prints_first)
    for _ in range(3):
        with pytest.raises(ValueError, match="the user's own") as raised:
            fast(torch.ones(3))
        (note,) = raised.value.__notes__
        assert "trident: the call ran eagerly, because" in note and "print" in note


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


def one_hot(x: torch.Tensor) -> Any:
    index = x.long()
    return torch.nn.functional.one_hot(index, 3), torch.ops.aten.one_hot(index.t(), 3)[0]


def one_hot_by_name(x: torch.Tensor) -> Any:
    return (torch.nn.functional.one_hot(num_classes=3, input=x.long()),)


def quantile_by_name(x: torch.Tensor) -> Any:
    return (torch.quantile(input=x, q=x[0, 0]),)


def quantiles(x: torch.Tensor) -> Any:
    q = x.flatten()[:2]
    return torch.quantile(x, q), x.nanquantile(q[0], dim=1, keepdim=True, interpolation="nearest")


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize(
    ("function", "right", "wrong", "message"),
    [
        (one_hot, 2.0, 3.0, "must be smaller than num_classes"),
        (one_hot, 2.0, -1.0, "must be non-negative"),
        (one_hot_by_name, 2.0, 3.0, "must be smaller than num_classes"),
        (quantiles, 0.5, 1.5, r"q values must be in the range \[0, 1\]"),
        (quantile_by_name, 0.5, 1.5, r"q values must be in the range \[0, 1\]"),
    ],
)
def test_values_that_operators_check_are_checked_in_each_call(
    function: Any, right: float, wrong: float, message: str, late: bool
) -> None:
    fast = trident.optimize(function, on_unsupported="raise")
    good, bad = torch.full((2, 3), right), torch.full((2, 3), wrong)
    with torch.no_grad():
        for x in (good, bad, good) if late else (bad, good, bad, good):
            if x is bad:
                with pytest.raises(RuntimeError, match=message):
                    fast(x)
                continue
            for mine, theirs in zip(fast(x), function(x), strict=True):
                assert torch.equal(mine, theirs) and mine.stride() == theirs.stride()
    assert fast.stats()["hits"] == (1 if late else 2) and fast.stats()["fallbacks"] == 0


def test_a_number_of_classes_varies() -> None:
    fast = trident.optimize(torch.nn.functional.one_hot, on_unsupported="raise")
    x = torch.arange(3)
    for classes in (3, 4, 5, 6):
        assert torch.equal(fast(x, classes), torch.nn.functional.one_hot(x, classes))
    assert fast.stats()["specializations"] == 1
