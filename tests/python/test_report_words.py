"""The guards' words read back: every word is accounted for, and what each says is right."""

from __future__ import annotations

import collections
import dataclasses
import enum
import functools
import types
import weakref
from typing import Any

import numpy
import pytest
import torch
from hypothesis import given, settings
from test_soundness_property import values
from torch import nn

import trident
from trident import _C
from trident.optimize import optimizer_of
from trident.report.stream import Unreadable
from trident.report.words import Facts, WordReader, readable


def read_back(function: Any, *args: Any, **kwargs: Any) -> Facts:
    """All facts of a call, argument and state words read to their end."""
    scm = optimizer_of(trident.optimize(function)).scm
    facts = _C.collect(scm, args, kwargs)
    assert facts.unsupported is None, facts.unsupported
    objects = {id(value): value for value in facts.identities}
    state = WordReader(facts.state_words, objects)
    state.value("root")
    assert state.position == len(facts.state_words)
    call = WordReader(facts.words, objects)
    call.call(["a", "b"], state.place)
    assert call.position == len(facts.words)
    return {readable(place): text for place, text in {**call.facts, **state.facts}.items()}


def nothing() -> None:
    pass


def of(value: Any) -> Facts:
    """The facts of one argument."""
    return {
        place.replace("argument a", "a"): text
        for place, text in read_back(lambda a: None, value).items()
        if "argument a" in place
    }


class Color(enum.Enum):
    RED = 1


class Count(int):
    pass


class Slotted:
    __slots__ = ("left", "right")


class Tagged(nn.Module):
    shared: Any = [1, {"k": 2}]

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(2, 3), nn.Linear(3, 2, bias=False)])
        self.scale = 0.5

    def forward(self, a: Any) -> Any:
        return a


SCALES = {"x": 1.5}


def uses_globals(a: Any) -> Any:
    return SCALES["x"], a


@pytest.mark.parametrize(
    ("value", "place", "text"),
    [
        (None, "a", "None"),
        (True, "a", "True"),
        (-3, "a", "-3"),
        (2**70, "a", str(2**70)),
        (-0.0, "a", "-0.0"),
        (1 + 2j, "a", "(1+2j)"),
        (numpy.float32(1.5), "a", "float32 1.5"),
        (numpy.int8(-3), "a", "int8 -3"),
        (types.SimpleNamespace(k=1), "a.k", "1"),
        ("naïve ☃ 𝄞", "a", repr("naïve ☃ 𝄞")),
        (b"0123456789", "a", "b'0123456789'"),
        (torch.float16, "a", "torch.float16"),
        (torch.device("cuda", 1), "a", "cuda:1"),
        ([1, (2, "x")], "a[1][1]", "'x'"),
        ([1, 2, 3], "length of a", "3 (list)"),
        (collections.deque([1, 2]), "length of a", "2 (deque)"),
        (collections.deque([1, 2], maxlen=4), "length of a", "2 (deque, at most 4)"),
        (collections.deque([1, "x"]), "a[1]", "'x'"),
        ({"k": {3: 4.0}}, "a['k'][3]", "4.0"),
        ({"k": 1, "l": 2}, "keys of a", "k, l"),
        ({8}, "element 0 of a", "8"),
        (range(2, 9, 3), "a.step", "3"),
        (slice(None, 5), "a.stop", "5"),
        (torch.Size([4, 5]), "a[1]", "5"),
        (Count(7), "a", "7"),
        (functools.partial(print, 1), "a.args[0]", "1"),
        (types.SimpleNamespace, "a", None),
        (collections.OrderedDict(b=1, a=2), "a['b']", "1"),
    ],
)
def test_a_value_reads_back(value: Any, place: str, text: str | None) -> None:
    found = of(value)
    assert found[place] == text if text is not None else "SimpleNamespace" in found[place]


def test_enum_members_functions_and_modules_are_named() -> None:
    assert of(Color.RED)["a"] == "Color.RED"
    assert of(torch)["a"].startswith("module torch at 0x")
    assert of(len)["a"].startswith("builtin_function_or_method len at 0x")


def test_a_tensor_reads_back() -> None:
    found = of(torch.zeros(3, 4, dtype=torch.float64).t())
    assert found["a: dtype"] == "float64" and found["a: device"] == "cpu"
    assert [found[f"a: size {i}"] for i in (0, 1)] == ["4", "3"]
    assert [found[f"a: stride {i}"] for i in (0, 1)] == ["1", "4"]
    assert found["a: requires_grad"] == "False"
    assert of(nn.Parameter(torch.zeros(2)))["a: requires_grad"] == "True"


def test_slots_that_are_set_and_not_set() -> None:
    value = Slotted()
    value.right = 4
    found = of(value)
    assert found["a.left"] == "not set" and found["a.right"] == "4"


def test_what_was_met_before_is_named() -> None:
    x, box = torch.zeros(2), [1]
    found = of([x, box, {"again": x, "box": box}])
    assert found["a[2]['again']"] == "the same tensor as argument a[0]"
    assert found["a[2]['box']"] == "the same object as argument a[1]"


def test_weak_references_and_methods() -> None:
    module = nn.Linear(2, 2)
    found = of([module, weakref.ref(module), module.forward])
    assert found["what a[1] refers to"] == "the same object as argument a[0]"
    assert found["a[2].__self__"] == "the same object as argument a[0]"


def test_a_moved_order_is_said() -> None:
    value = collections.OrderedDict(a=1, b=2)
    value.move_to_end("a")
    assert of(value)["order of a"] == "[1, 0]"


def test_state_of_a_module_with_class_attributes() -> None:
    found = read_back(Tagged().eval(), torch.zeros(2))
    assert found["root.layers[0].weight: size 0"] == "3"
    assert found["root.layers[1].bias"] == "None"
    assert found["root.scale"] == "0.5" and found["root.training"] == "False"
    assert found["Tagged.shared[1]['k']"] == "2"


def test_functions_with_defaults_closures_attributes_and_globals() -> None:
    offset = [7]

    def inner(a: Any, b: int = 3, *, c: str = "d") -> Any:
        return a, b, c, offset, uses_globals(a)

    inner.note = 1  # type: ignore[attr-defined]
    found = read_back(inner, 0)
    assert found["defaults of root[0]"] == "3"
    assert found["keyword defaults of root['c']"] == "'d'"
    assert found["variable offset of root[0]"] == "7"
    assert found["root.note"] == "1"
    assert found[f"{__name__}.SCALES['x']"] == "1.5"


def test_arguments_that_are_part_of_the_state() -> None:
    module = Tagged()
    found = read_back(module, module.layers[0].weight, b=module.layers)
    assert found["argument a is"] == "root._modules['layers']._modules['0']._parameters['weight']"
    assert found["argument b is"] == "root._modules['layers']"


def test_the_environment_has_pythons_names() -> None:
    def facts() -> Facts:
        return read_back(nothing)

    with torch.no_grad():
        assert facts()["torch.is_grad_enabled()"] == "False"
    with torch.inference_mode():
        assert facts()["torch.is_inference_mode_enabled()"] == "True"
    before = facts()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        changed = facts()
    assert [name for name in before if before[name] != changed[name]] == [
        "torch.autocast of the CPU"
    ]
    assert changed["torch.autocast of the CPU"] == "bfloat16"
    assert before["torch.get_num_threads()"] == str(torch.get_num_threads())
    assert before["torch.get_default_dtype()"] == "float32"


def test_float32_settings_have_pythons_names_and_values() -> None:
    before = torch.backends.cudnn.conv.fp32_precision
    torch.backends.cudnn.conv.fp32_precision = "ieee"
    try:
        ieee = read_back(nothing)
        torch.backends.cudnn.conv.fp32_precision = "tf32"
        tf32 = read_back(nothing)
    finally:
        torch.backends.cudnn.conv.fp32_precision = before
    assert [name for name in ieee if ieee[name] != tf32[name]] == [
        "torch.backends.cudnn.conv.fp32_precision"
    ]
    assert ieee["torch.backends.cudnn.conv.fp32_precision"] == "ieee"
    assert tf32["torch.backends.cudnn.conv.fp32_precision"] == "tf32"
    assert ieee["torch.get_float32_matmul_precision()"] == torch.get_float32_matmul_precision()


@pytest.mark.parametrize(
    ("name", "module", "attribute"),
    [
        ("torch.backends.cudnn.enabled", torch.backends.cudnn, "enabled"),
        ("torch.backends.cudnn.benchmark", torch.backends.cudnn, "benchmark"),
        ("torch.backends.cudnn.deterministic", torch.backends.cudnn, "deterministic"),
        (
            "torch.utils.deterministic.fill_uninitialized_memory",
            torch.utils.deterministic,
            "fill_uninitialized_memory",
        ),
    ],
)
def test_a_flag_is_named_as_python_names_it(name: str, module: Any, attribute: str) -> None:
    before = read_back(nothing)
    old = getattr(module, attribute)
    setattr(module, attribute, not old)
    try:
        now = read_back(nothing)
    finally:
        setattr(module, attribute, old)
    assert [each for each in before if before[each] != now[each]] == [name]
    assert now[name] == str(not old)


def test_words_out_of_order_are_refused() -> None:
    with pytest.raises(Unreadable):
        WordReader([_C.word_tags["FLOAT"] << 56], {}).value("a")
    with pytest.raises(Unreadable):
        WordReader([], {}).value("a")


@dataclasses.dataclass
class Holder:
    value: Any


@settings(max_examples=150)
@given(values, values)
def test_every_word_of_any_structure_is_accounted_for(argument: Any, held: Any) -> None:
    module = Tagged()
    module.held = Holder(held)
    read_back(module, argument, b=Holder(argument))
