"""Generated C++: it compiles without warnings and says what the program says."""

from __future__ import annotations

import dataclasses
import math
import pathlib
import re
import subprocess

import pytest
import torch
from pipeline_cases import CASES, Case
from pipeline_helpers import capture_function, torch_typed_table

from trident.build.builder import _interface_header
from trident.codegen import GeneratedProgram, generate, names
from trident.codegen.constants import Constants
from trident.codegen.scope import Scope
from trident.errors import TridentError
from trident.ir.steps import HostProgram


@dataclasses.dataclass
class Parameter:
    name: str
    type: str
    tensor: int | None = None
    bits: int = 0


@dataclasses.dataclass
class Variant:
    kernel: int
    params: list[Parameter]
    grid: tuple[int, int, int]
    facts: tuple[()] = ()
    only_read: frozenset[int] = frozenset()


@pytest.fixture(scope="module")
def include(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("include")
    (folder / "trident").mkdir()
    (folder / "trident" / "abi.h").write_text(_interface_header())
    return folder


def check(source: str, include: pathlib.Path) -> None:
    """Fails on any error or warning."""
    finished = subprocess.run(
        ["g++", "-std=c++17", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-I", str(include)]
        + ["-x", "c++", "-"],
        input=source,
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr + source


@pytest.mark.parametrize("with_typed", [True, False], ids=["typed", "boxed"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_source_compiles_without_warnings(
    case: Case, with_typed: bool, include: pathlib.Path
) -> None:
    capture = capture_function(case.function, case.make(), case.name)
    check(generate(capture, [], torch_typed_table() if with_typed else {}).source, include)


def launches(grid: tuple[int, int, int] = (4, 1, 1)) -> GeneratedProgram:
    def function(x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        torch.ops.trident.launch([x[1:], y], 0)
        torch.ops.trident.launch([y], 1)
        return y.sum()

    parameters = [
        Parameter("source", "*fp32", tensor=0),
        Parameter("target", "*fp32", tensor=1),
        Parameter("scale", "fp32", bits=0x3F800000),
        Parameter("big", "i64", bits=2**64 - 1),
    ]
    variants = [
        Variant(1, parameters, grid),
        Variant(0, [Parameter("target", "*fp32", tensor=0)], (1, 2, 3)),
    ]
    return generate(
        capture_function(function, [torch.ones(4, 8)]),
        variants,
        torch_typed_table(),
    )


def test_launch_records(include: pathlib.Path) -> None:
    program = launches()
    check(program.source, include)
    assert program.num_launches == 2
    assert program.launch_order == [0, 1]
    assert "{TRIDENT_PARAM_INPUT, input::input_0},  // source: *fp32" in program.source
    assert "{TRIDENT_PARAM_PLANNED, slot::empty_like},  // target: *fp32" in program.source
    assert "{TRIDENT_PARAM_CONSTANT, 1065353216},  // scale: fp32" in program.source
    assert "UINT64_C(0xffffffffffffffff)" in program.source
    assert "= address(in[input::input_0], 32);" in program.source  # one row of 8 floats
    assert "{1, 4, k_model_layers_0_mlp_params, {4, 1, 1}, 0}" in program.source


def test_addresses_in_memory_that_only_launches_touch_are_told_apart(
    include: pathlib.Path,
) -> None:
    def function(*inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        alone, added, returned, described = inputs
        fresh, filled, viewed, twice = (torch.empty_like(alone) for _ in range(4))
        torch.ops.trident.launch([alone[1:], added, returned, described], 0)
        torch.ops.trident.launch([fresh, filled, viewed, twice], 1)
        return added + 1, fresh, filled.fill_(2), viewed[1:], returned, twice.t(), twice[0]

    def launch(names_: str, kind: str = "*fp32") -> Variant:
        parameters = [Parameter(n, "*fp32", tensor=i) for i, n in enumerate(names_)]
        parameters[-1].type = kind
        return Variant(0, parameters, (1, 1, 1))

    capture = capture_function(function, [torch.ones(4, 8) for _ in range(4)])
    variants = [launch("abcd", "nvTmaDesc"), launch("efgh")]
    source = generate(capture, variants, torch_typed_table()).source
    check(source, include)
    sources = re.findall(r"{TRIDENT_PARAM_(\w+), ([\w:]+)},  // (\w):", source)
    assert sources == [
        ("INPUT", "input::input_0", "a"),
        ("RUNTIME", "0", "b"),  # an operator reads it
        ("RUNTIME", "0", "c"),  # the caller sees it as a result
        ("RUNTIME", "0", "d"),  # its address lies in a descriptor
        ("OUTPUT", "1", "e"),
        ("RUNTIME", "0", "f"),  # an operator writes it
        ("OUTPUT", "3", "g"),  # the result is a view of it
        ("RUNTIME", "0", "h"),  # so are two results
    ]


def test_an_input_that_launches_only_read_is_not_written() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        z = x * 2
        torch.ops.trident.launch([x[1:], y, z], 0)
        torch.ops.trident.launch([y, z], 1)
        return z

    def written(first: set[int], second: set[int]) -> list[int]:
        variants = [
            Variant(0, [Parameter(n, "*fp32", tensor=i) for i, n in enumerate(names_)], (1, 1, 1))
            for names_ in ("xyz", "yz")
        ]
        variants[0].only_read, variants[1].only_read = frozenset(first), frozenset(second)
        capture = capture_function(function, [torch.ones(4, 8), torch.ones(4)])
        program = generate(capture, variants, torch_typed_table())
        assert program.launched_inputs == [0, 1]
        return program.written_inputs

    assert written(set(), set()) == [0, 1]
    assert written({0, 1}, {0}) == []
    assert written({0, 1}, {1}) == [1]  # the second launch writes it
    assert written({1}, {0}) == [0]  # through a view


def test_empty_grid_keeps_its_record(include: pathlib.Path) -> None:
    program = launches((0, 1, 1))
    check(program.source, include)
    assert "{0, 1, 1}, 0}" in program.source


def test_missing_variant_is_reported() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        torch.ops.trident.launch([x], 0)
        return x

    with pytest.raises(TridentError, match="no compiled kernel"):
        generate(capture_function(function, [torch.ones(4)]), [], {})


def test_statistics() -> None:
    capture = capture_function(lambda x: x.exp().sin().cos(), [torch.ones(4)])
    table = {key: torch_typed_table()[key] for key in ("exp.out", "cos")}
    program = generate(capture, [], table)
    assert (program.calls_typed, program.calls_boxed) == (2, 1)
    assert (program.num_inputs, program.num_outputs) == (1, 1)
    assert "2,  // calls_typed" in program.source
    assert 'aten::sin"' in program.source
    assert "torch.aten.sin" in program.mlir


def test_code_is_named_after_the_model() -> None:
    source = generate(capture_function(lambda x: x.exp(), [torch.ones(4)]), [], {}).source
    assert "// model.layers.0\nstatic trident_status run_model_layers_0(" in source
    assert "// model.layers.0.mlp\n" in source
    assert "// model.py:12\n" in source


def test_lines_that_can_be_broken_are() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.cat([x] * 40).sum()

    source = generate(capture_function(function, [torch.ones(4)]), [], torch_typed_table()).source
    body = source[source.index("static trident_status run_") :]
    assert max(len(line) for line in body.splitlines()) <= 100


def test_long_programs_are_split_into_functions(include: pathlib.Path) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        for _ in range(500):
            x = x.exp()
        return x

    source = generate(capture_function(function, [torch.ones(4)]), [], torch_typed_table()).source
    check(source, include)
    assert len(re.findall(r"^static trident_status run_model", source, re.MULTILINE)) == 3


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (math.inf, "__builtin_inf()"),
        (-math.inf, "-__builtin_inf()"),
        (math.nan, '__builtin_nan("")'),
        (1e-06, "1e-06"),
        (2.0, "2.0"),
        (-0.0, "-0.0"),
        (1e300, "1e+300"),
    ],
)
def test_floating_literals(value: float, text: str) -> None:
    assert names.floating(value) == text


def test_integer_literals() -> None:
    assert names.integer(-(2**63)) == "INT64_MIN"
    assert names.integer(2**63 - 1) == "INT64_MAX"
    assert names.integer(2**40) == "INT64_C(1099511627776)"
    assert names.integer(-7) == "-7"


def test_strings_are_escaped() -> None:
    assert names.string('a"b\\c\n??') == '"a\\"b\\\\c\\012\\077\\077"'
    assert names.comment("a\nb\\") == "a b"


def test_identifiers() -> None:
    scope = names.Names()
    assert scope.unique("model.layers.0.weight") == "model_layers_0_weight"
    assert scope.unique("model_layers.0_weight") == "model_layers_0_weight_2"
    assert scope.unique("new") == "new_"
    assert scope.unique("0") == "at_0"
    assert scope.unique("a_2") == "a_2"
    assert scope.unique("a") == "a"
    assert scope.unique("a") == "a_3"


@pytest.mark.parametrize("text", ["s0", "n1", "f2", "d3", "r4", "INT8_MAX", "TRIDENT_TRY", "new"])
def test_identifiers_are_neither_symbols_nor_words_of_the_header(text: str) -> None:
    assert names.identifier(text) == f"{text}_"


def test_operator_named_like_a_local_variable() -> None:
    host = HostProgram([], [], [], [])
    assert Scope(host, []).functions.unique("t") == "t_2"


def test_constants_with_one_value_are_defined_once() -> None:
    constants = Constants()
    assert constants.ints([1, -2]) == constants.ints((1, -2)) == "kInts_1_m2"
    assert constants.scalar(True) != constants.scalar(1)
    assert constants.scalar(1) != constants.scalar(1.0)
    assert constants.scalar(0.0) != constants.scalar(-0.0)
    assert len(constants.definitions) == 6
