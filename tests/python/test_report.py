"""Why calls missed and what is guarded: `explain`, `TRIDENT_LOGS`, the eviction warning."""

from __future__ import annotations

import io
import logging
import os
import pathlib
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

import trident
from trident.optimize import optimizer_of
from trident.report import logs

HERE = pathlib.Path(__file__).name


def line_of(text: str) -> str:
    """The place of this file's first line with `text`, as reports spell it."""
    lines = pathlib.Path(__file__).read_text().splitlines()
    return f"{HERE}:{next(i for i, line in enumerate(lines, 1) if text in line)}"


class Settings:
    def __init__(self, gain: float) -> None:
        self.gain = gain


SETTINGS = Settings(2.0)
FACTOR = 3.0


class Attention(nn.Module):
    kind = "plain"

    def __init__(self) -> None:
        super().__init__()
        self.scale = 0.5
        self.sizes = [1, 2]
        self.weight = nn.Parameter(torch.ones(4), requires_grad=False)

    def forward(self, x: torch.Tensor, n: int = 1, **options: Any) -> torch.Tensor:
        y = x * self.scale + n  # reads scale
        y = y * FACTOR * self.weight  # reads FACTOR
        return y * SETTINGS.gain if self.kind == "plain" else y


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Attention()])

    def forward(self, x: torch.Tensor, *args: Any, **options: Any) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x, *args, **options)
        return x


@pytest.fixture
def model() -> Any:
    return trident.optimize(Model().eval(), dynamic=False)


def reasons(optimized: Any) -> list[str]:
    """What is said about the last miss."""
    return [str(each) for each in optimizer_of(optimized).misses.misses[-1].differences]


Call = Callable[[Any], object]


def call(model: Any) -> None:
    model(torch.ones(2, 4))


def _with(manager: Any) -> Call:
    def run(model: Any) -> None:
        with manager:
            call(model)

    return run


def _after(change: Call) -> Call:
    def run(model: Any) -> None:
        change(model)
        call(model)

    return run


def _set_global(name: str, value: Any) -> Call:
    return _after(lambda _: globals().__setitem__(name, value))


@pytest.fixture
def kept_globals() -> Iterator[None]:
    before = dict(FACTOR=FACTOR, gain=SETTINGS.gain, kind=Attention.kind)
    yield
    globals()["FACTOR"] = before["FACTOR"]
    SETTINGS.gain = before["gain"]
    Attention.kind = before["kind"]


CHANGES: dict[str, tuple[Call, list[str]]] = {
    "size": (lambda m: m(torch.ones(3, 4)), ["argument x: size 0 was 2, now 3"]),
    "dtype": (
        lambda m: m(torch.ones(2, 4, dtype=torch.float64)),
        ["argument x: dtype was float32, now float64"],
    ),
    "stride": (
        lambda m: m(torch.ones(4, 2).t()),
        ["argument x: stride 0 was 4, now 1", "argument x: stride 1 was 1, now 2"],
    ),
    "number": (
        lambda m: m(torch.ones(2, 4), 5),
        ["number of positional arguments: 1 -> 2", "argument #1 was not there, now 5"],
    ),
    "keyword": (
        lambda m: m(torch.ones(2, 4), note="a"),
        ["keyword arguments: none -> note", "argument note was not there, now 'a'"],
    ),
    "gradients": (
        _with(torch.enable_grad()),
        ["torch.is_grad_enabled(): False -> True"],
    ),
    "autocast": (
        _with(torch.autocast("cpu", dtype=torch.bfloat16)),
        ["torch.autocast of the CPU: off -> bfloat16"],
    ),
    "attribute": (
        _after(lambda m: setattr(m.layers[0], "scale", 0.25)),
        ["module.layers[0].scale: 0.5 -> 0.25"],
    ),
    "training": (
        _after(lambda m: m.layers[0].train()),
        ["module.layers[0].training: False -> True"],
    ),
    "list": (
        _after(lambda m: m.layers[0].sizes.append(3)),
        [
            "length of module.layers[0].sizes: 2 (list) -> 3 (list)",
            "module.layers[0].sizes[2]: not there -> 3",
        ],
    ),
    "new attribute": (
        _after(lambda m: setattr(m.layers[0], "extra", 1)),
        ["module.layers[0].extra: not there -> 1"],
    ),
    "weight": (
        _after(lambda m: setattr(m.layers[0].weight, "data", torch.ones(4, dtype=torch.float64))),
        ["module.layers[0].weight: dtype: float32 -> float64"],
    ),
    "global": (_set_global("FACTOR", 4.0), [f"{__name__}.FACTOR: 3.0 -> 4.0"]),
    "inside of a global": (
        _after(lambda _: setattr(SETTINGS, "gain", 2.5)),
        [f"{__name__}.SETTINGS.gain: 2.0 -> 2.5"],
    ),
    "class attribute": (
        _after(lambda _: setattr(Attention, "kind", "other")),
        ["Attention.kind: 'plain' -> 'other'"],
    ),
}


@pytest.mark.usefixtures("kept_globals")
@pytest.mark.parametrize("name", CHANGES)
@torch.no_grad()
def test_a_miss_names_the_fact_that_differs(model: Any, name: str) -> None:
    change, expected = CHANGES[name]
    call(model)
    change(model)
    found = reasons(model)
    for text in expected:
        assert text in found, found
    assert model.stats()["misses"] == 2
    assert f"call 2 (float{'64' if name == 'dtype' else '32'}" in trident.explain(model)


@torch.no_grad()
def test_a_miss_is_compared_with_the_nearest_specialization(model: Any) -> None:
    model(torch.ones(2, 4))
    model(torch.ones(7, 4, dtype=torch.float64))
    model(torch.ones(8, 4, dtype=torch.float64))
    assert reasons(model) == ["argument x: size 0 was 7, now 8"]
    assert optimizer_of(model).misses.misses[-1].nearest == 1


@torch.no_grad()
@pytest.mark.parametrize(
    ("given", "difference"),
    [
        (7, "argument s was 3.5, now 7"),
        (True, "argument s was 3.5, now True"),
        ("a", "argument s was 3.5, now 'a'"),
    ],
)
def test_a_number_that_varies_and_one_of_another_type(given: Any, difference: str) -> None:
    fast = trident.optimize(lambda x, s: x * (1 if isinstance(s, str) else s))
    for number in (2.5, 3.5, given):
        fast(torch.ones(2), number)
    assert reasons(fast) == [difference]


@torch.no_grad()
def test_a_hit_is_no_miss_and_the_first_call_has_nothing_to_differ_from(model: Any) -> None:
    call(model)
    call(model)
    (only,) = optimizer_of(model).misses.misses
    assert "there is no specialization yet" in str(only)


@torch.no_grad()
def test_conditions_of_symbolic_sizes_are_named() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x + 1 if x.shape[0] % 4 == 0 else x + 2  # asks for the size

    fast = trident.optimize(function, dynamic=True)
    fast(torch.ones(8))
    fast(torch.ones(12))
    assert fast.stats()["misses"] == 1
    fast(torch.ones(9))
    (reason,) = reasons(fast)
    assert "condition size 0 of x % 4 == 0 (at" in reason
    assert "does not hold (size 0 of x is 9)" in reason
    assert line_of("# asks for the size") in reason
    guards = [
        each for each in trident.explain(fast).splitlines() if "where size 0 of x % 4" in each
    ]
    guard = next(each for each in guards if "== 0" in each)
    assert line_of("# asks for the size") in guard


def test_why_a_size_stays_fixed_is_named() -> None:
    fast = trident.optimize(lambda x: x + len(str(x.shape[0])))
    fast(torch.ones(3))
    assert "stay fixed" not in trident.explain(fast)
    fast(torch.ones(40))
    reason = "the call turns a number that varies into text"
    assert f"numbers that vary stay fixed: {reason}" in trident.explain(fast)


def test_the_line_that_fixes_a_number_is_named() -> None:
    fast = trident.optimize(lambda x, n: x + sum(range(n)))  # fixes a number
    for n in (3, 4):
        fast(torch.ones(3), n)
    (line,) = [each for each in trident.explain(fast).splitlines() if "stay fixed" in each]
    assert "Python code depends on the value of a number that varies (at " in line
    assert line_of("# fixes a number") in line


def test_condition_with_any_operation_is_named() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        bits = x.shape[0] | 1
        return x + 1 if (bits & 12) >> 2 == 2 and bits << 1 > 3 else x + 2

    fast = trident.optimize(function, dynamic=True)
    fast(torch.ones(8))
    fast(torch.ones(4))
    (reason,) = reasons(fast)
    assert "condition ((size 0 of x | 1) & 12) // 4 == 2 (at" in reason
    assert "does not hold (size 0 of x is 4)" in reason


def test_what_cannot_be_described_is_said() -> None:
    fast = trident.optimize(lambda x, y: x)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fast(torch.ones(1), iter([]))
    assert "list_iterator" in trident.explain(fast)
    assert optimizer_of(fast).misses.misses[-1].nearest is None


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (lambda m, a: m.layers[0].__setattr__("log", io.StringIO()), "module.layers[0].log"),
        (lambda m, a: m.layers[0].sizes.append(io.StringIO()), "module.layers[0].sizes[2]"),
        (lambda m, a: a.update(last=io.StringIO()), "argument last"),
        (lambda m, a: a.update(last=[1, {"a": io.StringIO()}]), "argument last[1]['a']"),
        (lambda m, a: a.update(last=Settings([].append)), "argument last.gain"),  # type: ignore[arg-type]
        (lambda m, a: a.update(last={torch.ones(1), 2}, next=1), None),
    ],
)
def test_the_place_of_what_cannot_be_described_is_named(
    model: Any, path: Callable[[Any, dict[str, Any]], object], expected: str | None
) -> None:
    arguments: dict[str, Any] = {"first": [1, 2]}
    path(optimizer_of(model).function, arguments)
    for _ in range(2):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model(torch.ones(4), **arguments)
    told = [line for line in trident.explain(model).splitlines() if "not captured" in line]
    assert len(told) == 1
    assert f"({expected})" in told[0] if expected else "(" not in told[0]


@torch.no_grad()
def test_explain_lists_guards_with_the_lines_that_read_them(model: Any) -> None:
    call(model)
    call(model)
    text = trident.explain(model)
    assert "[0] 1 hits" in text
    assert "argument x is float32[2, 4] with strides [4, 1] on cpu, address modulo 16 is 0" in text
    assert "torch.is_grad_enabled() is False" in text
    (scale,) = [each for each in text.splitlines() if "module.layers[0].scale is 0.5" in each]
    assert line_of("# reads scale") in scale
    (factor,) = [each for each in text.splitlines() if f"{__name__}.FACTOR is 3.0" in each]
    assert line_of("# reads FACTOR") in factor
    assert "bytes of code, arena" in text


@torch.no_grad()
def test_the_warning_names_the_fact_that_keeps_changing() -> None:
    fast = trident.optimize(lambda x: x + 1, dynamic=False, max_specializations=2)
    with pytest.warns(UserWarning, match="keeps changing is argument x: size 0 .lately") as caught:
        for size in range(2, 6):
            fast(torch.ones(size))
    assert len(caught) == 1
    assert fast.stats()["evictions"] == 2


@pytest.fixture
def quiet_again() -> Iterator[None]:
    yield
    logs.configure("")


@pytest.mark.usefixtures("quiet_again")
@torch.no_grad()
def test_logs_as_it_happens(model: Any, caplog: pytest.LogCaptureFixture) -> None:
    logs.configure("guards, misses")
    model(torch.ones(2, 4))
    model(torch.ones(3, 4))
    by_logger: dict[str, list[str]] = {"trident.guards": [], "trident.misses": []}
    for record in caplog.records:
        if record.name in by_logger:
            by_logger[record.name].append(record.getMessage())
    guards, misses = by_logger["trident.guards"], by_logger["trident.misses"]
    assert len(guards) == 2 and "argument x is float32[3, 4]" in guards[1]
    assert "argument x: size 0 was 2, now 3" in misses[1]
    caplog.clear()
    logs.configure("misses")
    model(torch.ones(4, 4))
    names = {record.name for record in caplog.records if record.levelno == logging.INFO}
    assert "trident.misses" in names and "trident.guards" not in names


@pytest.mark.usefixtures("quiet_again")
def test_an_unknown_log_is_named() -> None:
    with pytest.warns(UserWarning, match="no log 'guard', 'x'; use guards, misses"):
        logs.configure("guard,misses,x")


def test_the_environment_variable_logs_to_standard_error(tmp_path: pathlib.Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import torch, trident\n"
        "fast = trident.optimize(lambda x: x, dynamic=False)\n"
        "fast(torch.ones(2)); fast(torch.ones(3))\n"
    )
    done = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        env={**os.environ, "TRIDENT_LOGS": "misses"},
        check=True,
        timeout=120,
    )
    assert "[trident.misses]" in done.stderr
    assert "argument x: size 0 was 2, now 3" in done.stderr
    assert "trident.guards" not in done.stderr


def test_the_environment_is_shown_once_but_for_what_differs(model: Any) -> None:
    for size in (2, 3):
        with torch.no_grad():
            model(torch.ones(size, 4))
    with torch.inference_mode():
        model(torch.ones(2, 4))
    text = trident.explain(model)
    assert text.count("torch.backends.cudnn.enabled is ") == 1
    specializations, common = text.split("environment, guarded by each specialization:")
    assert "torch.backends.cudnn.enabled is " in common.split("last misses")[0]
    assert "torch.is_grad_enabled() is False" in common
    for index, mode in enumerate(("False", "False", "True")):
        paragraph = specializations.split(f"\n[{index}] ")[1].split("\n[")[0]
        assert f"  environment: torch.is_inference_mode_enabled() is {mode}\n" in paragraph


def test_what_has_a_name_needs_no_address_and_builtins_are_counted() -> None:
    fast = trident.optimize(lambda x, n: torch.add(x, sum(range(n)) + len(line_of.__name__)))
    fast(torch.ones(2), 3)
    (guards,) = trident.explain(fast).split("    guards:\n")[1:]
    guards = guards.split("\n\n")[0]
    assert f"{__name__}.torch is module torch (at " in guards
    assert f"{__name__}.line_of is function line_of (at " in guards
    assert "not set" not in guards and " at 0x" not in guards
    assert "state, 3 builtins not redefined, " in guards
