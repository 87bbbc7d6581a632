"""The import into Torch-MLIR: verified, and nothing of the capture is lost."""

from __future__ import annotations

import math
import types
from typing import Any, cast

import pytest
import torch
from pipeline_cases import CASES, Case
from pipeline_helpers import capture_function
from torch.fx.experimental.proxy_tensor import make_fx
from torch_mlir import ir

from trident.capture.result import Capture, Input
from trident.errors import UnsupportedError
from trident.ir.importer import import_capture
from trident.ir.program import Operation, Program, Value, read_program


def imported(function: object, *inputs: torch.Tensor) -> Program:
    capture = capture_function(function, inputs)  # type: ignore[arg-type]
    return read_program(import_capture(capture).module, capture.name, capture.device)


def only(program: Program, name: str) -> Operation:
    (found,) = [each for each in program.operations if each.name == name]
    return found


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_module_is_verified_and_has_no_value_semantics(case: Case) -> None:
    module = import_capture(capture_function(case.function, case.make())).module
    assert module.operation.verify()
    text = str(module)
    assert "vtensor" not in text
    assert "torch.vtensor.literal" not in text


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_program_repeats_the_graph(case: Case) -> None:
    capture = capture_function(case.function, case.make())
    program = read_program(import_capture(capture).module, capture.name, capture.device)
    called = [
        node
        for node in capture.graph.nodes
        if node.op == "call_function" and isinstance(node.target, torch._ops.OpOverload)
    ]
    assert [operation.node for operation in program.operations] == [node.name for node in called]
    for node, operation in zip(called, program.operations, strict=True):
        schema = node.target._schema
        suffix = f".{schema.overload_name}" if schema.overload_name else ""
        assert operation.name == schema.name + suffix
        values = node.meta["val"]
        values = values if isinstance(values, (list, tuple)) else [values]
        for fake, value in zip(values, operation.results, strict=bool(schema.returns)):
            assert value is not None
            assert value.layout.sizes == tuple(fake.shape)
            assert value.layout.strides == fake.stride()
            assert value.layout.offset == fake.storage_offset()
            assert value.layout.dtype == fake.dtype
            assert value.device == str(fake.device)


def test_values_that_share_storage_say_so() -> None:
    program = imported(lambda x: (x.t(), x + 1), torch.ones(2, 3))
    view, fresh = program.outputs
    assert view.storage == program.inputs[0].storage
    assert fresh.storage != view.storage


def test_defaults_keywords_and_none_are_kept() -> None:
    program = imported(lambda x: x.to(torch.bfloat16), torch.ones(2))
    names = [each.name for each in only(program, "aten::_to_copy").schema.parameters]
    arguments = dict(zip(names, only(program, "aten::_to_copy").arguments, strict=True))
    assert arguments["dtype"] == 15  # c10::ScalarType::BFloat16
    assert arguments["device"] is None
    assert arguments["memory_format"] is None
    assert arguments["non_blocking"] is False


def test_device_keyword_is_kept() -> None:
    program = imported(lambda x: x + torch.arange(2, device="cpu"), torch.ones(2))
    assert torch.device("cpu") in only(program, "aten::arange").arguments


@pytest.mark.parametrize("number", [math.inf, -math.inf, 1e-06, -0.0])
def test_floats_are_exact(number: float) -> None:
    program = imported(lambda x: torch.full((2,), number) + x, torch.ones(2))
    found = only(program, "aten::full").arguments[1]
    assert isinstance(found, float)
    assert found.hex() == number.hex()


def test_nan_is_kept() -> None:
    program = imported(lambda x: torch.full((2,), math.nan) + x, torch.ones(2))
    found = only(program, "aten::full").arguments[1]
    assert isinstance(found, float) and math.isnan(found)


def test_number_for_a_tensor_keeps_the_overload() -> None:
    program = imported(lambda x: x * 2.5, torch.ones(2))
    operation = only(program, "aten::mul.Tensor")
    assert operation.arguments[1] == 2.5
    assert operation.mlir.name == "torch.aten.mul.Scalar"


def test_bool_is_no_int() -> None:
    program = imported(lambda x: torch.full((2,), True) & x, torch.ones(2, dtype=torch.bool))
    assert only(program, "aten::full").arguments[1] is True


def test_list_of_optional_tensors() -> None:
    program = imported(lambda x, i: x[:, i], torch.ones(3, 4), torch.tensor([0, 2]))
    indices = only(program, "aten::index.Tensor").arguments[1]
    assert isinstance(indices, list)
    assert indices[0] is None
    assert isinstance(indices[1], Value)


def test_as_strided_stays_a_view() -> None:
    program = imported(lambda x: x.as_strided((2, 2), (1, 1), 1) + 1, torch.ones(1000, 1000))
    (view,) = only(program, "aten::as_strided").outputs()
    assert view.layout.strides == (1, 1)
    assert view.storage == program.inputs[0].storage
    assert len(str(program.module)) < 10_000


def test_in_place_operator_keeps_its_meaning() -> None:
    program = imported(lambda x: x.add_(1), torch.ones(2))
    operation = only(program, "aten::add_.Tensor")
    assert operation.schema.mutates
    assert program.outputs[0].storage == program.inputs[0].storage


def test_several_results() -> None:
    program = imported(lambda x: x.sort(), torch.ones(3))
    values, indices = only(program, "aten::sort").outputs()
    assert (values.layout.dtype, indices.layout.dtype) == (torch.float32, torch.int64)
    assert program.outputs == [values, indices]


def test_list_result() -> None:
    program = imported(lambda x: x.split(2)[1] + 1, torch.ones(5))
    assert [v.layout.offset for v in only(program, "aten::split.Tensor").outputs()] == [0, 2, 4]


def test_constants_become_arguments() -> None:
    capture = capture_function(lambda x: x + torch.tensor([1.0, 2.0]), [torch.ones(2)])
    result = import_capture(capture)
    program = read_program(result.module, capture.name, capture.device)
    assert result.constants == list(capture.constants)
    assert [each.name for each in program.inputs] == ["input_0", *capture.constants]


def test_launch_carries_its_index_and_tensors() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        torch.ops.trident.launch([x, y], 3)
        return y

    program = imported(function, torch.ones(2))
    launch = only(program, "trident::launch")
    assert launch.launch == 3
    assert [each.name for each in launch.inputs()] == ["input_0", "empty_like"]


def test_operations_know_the_users_line() -> None:
    capture = capture_function(lambda x: x.exp(), [torch.ones(2)])
    module = import_capture(capture).module
    locations = module.operation.get_asm(enable_debug_info=True)
    assert 'loc("model.py":12:0)' in locations
    assert 'loc("model.layers.0.mlp"(' in locations
    (operation,) = read_program(module, "f", capture.device).operations
    assert (operation.module, operation.line) == ("model.layers.0.mlp", "model.py:12")


@pytest.mark.parametrize("dtype", [torch.uint16, torch.float8_e4m3fn, torch.complex64, torch.int8])
def test_unusual_dtypes(dtype: torch.dtype) -> None:
    program = imported(lambda x: x.clone(), torch.ones(2).to(dtype))
    assert program.outputs[0].layout.dtype == dtype


def test_complex_number_is_refused_with_operator_and_line() -> None:
    with pytest.raises(UnsupportedError, match=r"aten\.mul.*complex.*model\.py:12"):
        imported(lambda x: x * 2j, torch.ones(2))


def test_conjugated_tensor_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="conjugated"):
        imported(lambda x: x.conj() + 1, torch.ones(2, dtype=torch.complex64))


def test_graph_is_left_alone() -> None:
    capture: Capture = capture_function(lambda x: x.as_strided((2,), (1,)) * 2, [torch.ones(4)])
    before = str(capture.graph)
    import_capture(capture)
    assert str(capture.graph) == before


def test_imports_are_independent() -> None:
    first = import_capture(capture_function(lambda x: x + 1, [torch.ones(2)])).module
    second = import_capture(capture_function(lambda x: x + 1, [torch.ones(2)])).module
    assert isinstance(first, ir.Module)
    assert first.context is not second.context
    assert str(first) == str(second)


def test_number_that_an_operator_says_beforehand() -> None:
    # As attention on CUDA says its sequence lengths, whether or not these vary.
    def attention(q: torch.Tensor) -> tuple[torch.Tensor]:
        return (torch.ops.aten._scaled_dot_product_flash_attention(q, q, q)[0],)

    q = torch.empty(1, 4, 48, 64, device="meta", dtype=torch.bfloat16)
    graph = make_fx(attention, tracing_mode="symbolic")(q).graph
    symbols = types.SimpleNamespace(expression=lambda value: value.node.expr)
    capture = Capture(
        "attention", graph, [Input("q", 0, 0)], {}, [], q.device, symbols=cast(Any, symbols)
    )
    program = read_program(import_capture(capture).module, capture.name, capture.device)
    results = only(program, "aten::_scaled_dot_product_flash_attention").results
    assert [result is not None for result in results] == [
        *(True, True, False, False, False, False, True, True, True),
    ]
