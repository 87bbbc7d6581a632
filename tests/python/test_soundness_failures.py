"""Calls that raise because of their tensors' values: what Python code had changed by then stays."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from soundness_helpers import Pair, describe
from torch import nn

pytestmark = pytest.mark.filterwarnings("ignore:trident")


@pytest.fixture(autouse=True)
def _no_change_fails(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An error while changes are made has no caller to go to."""
    errors: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda error: errors.append(error.exc_value))
    yield
    assert not errors


@torch.library.custom_op("trident_failures::positive", mutates_args=())
def positive(x: torch.Tensor) -> torch.Tensor:
    if float(x.min()) <= 0:
        raise ValueError("there is a number that is not positive")
    return x.sqrt()


@positive.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


class Box:
    def __init__(self) -> None:
        self.count = 0


class Table(dict[str, Any]):
    """A dictionary with attributes."""


def module(forward: Callable[..., Any]) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        made: Any = type("Made", (nn.Module,), {"forward": forward, "__module__": __name__})()
        made.count, made.last, made.log, made.table = 0, None, [], {"first": 1, "old": 2}
        made.box, made.records = Box(), Table(old=1)
        return made

    return make


def state_of(made: Any) -> Any:
    named = {name: getattr(made, name, "deleted") for name in ("count", "last", "log", "table")}
    records = dict(made.records), vars(made.records)
    return describe({**named, "box": vars(made.box), "records": records})


def run(forward: Callable[..., Any], *calls: Any) -> tuple[str, Pair]:
    """Calls both arms; each time results, errors, arguments and state have to be the same."""
    outcomes = ""
    with torch.no_grad():
        pair = Pair(module(forward))
        for call in calls:
            outcomes += pair.call(1, lambda call=call: call())
            assert state_of(pair.target) == state_of(pair.eager)
    return outcomes, pair


def good() -> Any:
    return torch.arange(1.0, 5.0), torch.tensor([0, 3])


def bad() -> Any:
    return -torch.arange(4.0), torch.tensor([0, 7])


def counts_first(self: Any, x: torch.Tensor, index: torch.Tensor) -> Any:
    self.count += 1
    picked = x[index]
    self.count += 10
    return picked + self.count


def keeps_what_was_made(self: Any, x: torch.Tensor, index: torch.Tensor) -> Any:
    self.last = x * 2
    self.log.append(self.last[:2])
    picked = torch.index_select(x, 0, index)
    self.last = picked
    self.log.append(picked)
    del self.log[:-3]
    return picked.sum()


def changes_containers(self: Any, x: torch.Tensor, index: torch.Tensor) -> Any:
    self.table["x"] = (x, {"twice": [x + x]})
    self.table.pop("old", None)
    self.box.count += 2
    picked = torch.gather(x, 0, index)
    self.table["total"] = picked.sum()
    self.box.count = 0
    return picked


def changes_items_and_attributes(self: Any, x: torch.Tensor, index: torch.Tensor) -> Any:
    self.records.pop("old", None)
    self.records.last = x
    picked = torch.gather(x, 0, index)
    self.records["old"] = 1
    return picked


def in_two_places(self: Any, x: torch.Tensor, index: torch.Tensor) -> Any:
    total = x[index]
    self.count += 1
    x.mul_(2)
    total = total + positive(x)[:2]
    self.count += 100
    return total


def undone_before(self: Any, x: torch.Tensor, index: torch.Tensor) -> Any:
    self.count += 1
    first = x[index * 0]
    self.count -= 1
    return first + x[index]


def returns_an_argument(self: Any, x: torch.Tensor, index: torch.Tensor) -> Any:
    self.last = x
    self.table["index"] = index
    y = x.clone()
    y.index_fill_(0, index, 7.0)
    self.last = y
    return x


def divides(self: Any, x: torch.Tensor, index: torch.Tensor) -> Any:
    self.count += 1
    remainder = x.long() // (index - 7).repeat(2)
    self.log = [remainder]
    return remainder


FORWARDS = (
    *(counts_first, keeps_what_was_made, changes_containers, in_two_places, undone_before),
    *(returns_an_argument, divides, changes_items_and_attributes),
)


@pytest.mark.parametrize("forward", FORWARDS)
def test_changes_made_before_the_error_stay(forward: Callable[..., Any]) -> None:
    outcomes, _ = run(forward, good, good, bad, good, bad, bad, good, good, good, bad, good)
    assert outcomes[2] == "e" and "f" not in outcomes and outcomes.endswith("heh")


def test_a_first_call_that_raises() -> None:
    outcomes, pair = run(counts_first, bad, bad, good, good)
    assert set(outcomes[:2]) == {"e"} and pair.eager.count == 24


@pytest.mark.parametrize("forward", FORWARDS)
def test_with_sizes_and_numbers_that_vary(forward: Callable[..., Any]) -> None:
    def sized(number: int, call: Callable[[], Any]) -> Callable[[], Any]:
        def make() -> Any:
            x, index = call()
            return x.repeat(number), index.repeat(number)[
                : 2 if "div" not in repr(forward) else None
            ]

        return make

    calls = [sized(number, call) for number in (2, 3, 4, 5) for call in (good, good, bad, good)]
    run(forward, *calls)


def test_a_number_made_of_sizes_is_among_the_changes() -> None:
    def forward(self: Any, x: torch.Tensor, index: torch.Tensor) -> Any:
        self.count += x.shape[0]
        picked = x[index]
        self.count -= 1
        return picked

    def sized(number: int, call: Callable[[], Any]) -> Callable[[], Any]:
        return lambda: (call()[0].repeat(number), call()[1] * number)

    calls = [sized(number, call) for number in (2, 3, 4, 5, 6) for call in (good, bad)]
    outcomes, _ = run(forward, *calls)
    assert outcomes.endswith("hehehe")


def test_the_same_stage_serves_several_operators() -> None:
    def forward(self: Any, x: torch.Tensor, index: torch.Tensor) -> Any:
        self.last = x + 1
        total = x.new_zeros(2)
        for _ in range(4):
            total = total + x[index]
        return total

    outcomes, _ = run(forward, good, good, bad, good)
    assert outcomes == "mmeh"  # at first `last` is None


# --- code that an error would run


def catches(self: Any, x: torch.Tensor, index: torch.Tensor) -> Any:
    try:
        return x[index]
    except IndexError:
        return x[:2] * 0


def catches_everything(self: Any, x: torch.Tensor, index: torch.Tensor) -> Any:
    try:
        return positive(x)[:2]
    except:  # noqa: E722
        return x[:2] * 0


def catches_outside(self: Any, x: torch.Tensor, index: torch.Tensor) -> Any:
    def inner() -> torch.Tensor:
        return torch.take(x, index)

    try:
        result = inner()
    except (TypeError, LookupError) as error:
        self.last = type(error).__name__
        return x[:2]
    else:
        return result


def cleans_up(self: Any, x: torch.Tensor, index: torch.Tensor) -> Any:
    self.count += 1
    try:
        return x[index]
    finally:
        self.count -= 1


def counts_at_the_end(self: Any, x: torch.Tensor, index: torch.Tensor) -> Any:
    try:
        return x[index]
    finally:
        self.count += 1


def suppresses(self: Any, x: torch.Tensor, index: torch.Tensor) -> Any:
    picked = x[:2]
    with contextlib.suppress(IndexError):
        picked = x[index]
    return picked


def counts_in_a_tensor(self: Any, x: torch.Tensor, index: torch.Tensor) -> Any:
    try:
        return x[index]
    finally:
        x.add_(1)


@contextlib.contextmanager
def entered(box: Box) -> Iterator[None]:
    box.count += 1
    try:
        yield
    finally:
        box.count -= 1


def in_a_context(self: Any, x: torch.Tensor, index: torch.Tensor) -> Any:
    with entered(self.box):
        return x[index]


class Quiet(contextlib.ContextDecorator):
    def __enter__(self) -> Quiet:
        return self

    def __exit__(self, kind: type[BaseException] | None, *others: object) -> bool:
        return kind is IndexError


@Quiet()
def in_a_decorator(self: Any, x: torch.Tensor, index: torch.Tensor) -> Any:
    return x[index]


@pytest.mark.parametrize(
    "forward",
    [
        *(catches, catches_everything, catches_outside, suppresses, cleans_up),
        *(counts_at_the_end, counts_in_a_tensor, in_a_context, in_a_decorator),
    ],
)
def test_code_that_an_error_runs_is_left_to_eager(forward: Callable[..., Any]) -> None:
    outcomes, _ = run(forward, good, good, bad, good, bad, good)
    assert "h" not in outcomes and "m" not in outcomes


def other_errors(self: Any, x: torch.Tensor, index: torch.Tensor) -> Any:
    self.count += 1
    try:
        picked = x[index]
    except (TypeError, KeyError):
        picked = x
    return picked


def behind_the_handler(self: Any, x: torch.Tensor, index: torch.Tensor) -> Any:
    try:
        scale = self.scale
    except AttributeError:
        scale = 2.0
    self.count += 1
    return x[index] * scale


def in_a_library_context(self: Any, x: torch.Tensor, index: torch.Tensor) -> Any:
    self.count += 1
    with torch.no_grad(), contextlib.nullcontext():
        return x[index]


@pytest.mark.parametrize("forward", [other_errors, behind_the_handler, in_a_library_context])
def test_code_that_no_error_runs(forward: Callable[..., Any]) -> None:
    outcomes, _ = run(forward, good, good, bad, good)
    assert outcomes.endswith("eh") and "f" not in outcomes


def test_an_operator_that_may_raise_runs_also_where_nobody_uses_its_result() -> None:
    def forward(self: Any, x: torch.Tensor, index: torch.Tensor) -> Any:
        x[index]
        return x + 1

    outcomes, _ = run(forward, good, good, bad, good)
    assert outcomes == "mheh"
