"""The registry of typed ATen operators, as the extension reports it."""

from __future__ import annotations

import re

import pytest
import torch

from trident import _C

OPS: dict[str, tuple[str, bool, bool]] = _C.typed_ops()


def test_common_operators_have_cpu_shims_in_every_form() -> None:
    for name in ["mm", "mm.out", "add.Tensor", "add.out", "add_.Tensor", "view", "_to_copy"]:
        schema, cpu, _ = OPS[name]
        assert schema.startswith(f"{name}(")
        assert cpu, name


def test_cuda_shims_exist_exactly_where_torch_was_built_with_cuda() -> None:
    built_with_cuda = torch.version.cuda is not None
    assert OPS["mm.out"][2] is built_with_cuda
    assert any(cuda for _, _, cuda in OPS.values()) is built_with_cuda


@pytest.mark.parametrize("name", ["embedding.out", "convolution.out", "native_layer_norm.out"])
def test_out_forms_that_run_the_functional_form_and_copy_are_left_out(name: str) -> None:
    assert name.removesuffix(".out") in OPS
    assert name not in OPS


@pytest.mark.parametrize("name", ["uniform", "exponential", "index_put.out"])
def test_other_derived_forms_are_left_out(name: str) -> None:
    assert name not in OPS


def test_out_forms_that_reallocate_their_memory_are_left_out() -> None:
    assert "mse_loss" in OPS
    assert "mse_loss.out" not in OPS


@pytest.mark.parametrize("name", ["linear", "reshape", "max.other", "softmax.int"])
def test_operators_that_pytorch_decomposes_are_left_out(name: str) -> None:
    assert name not in OPS


def test_every_shim_belongs_to_an_operator_of_the_running_torch() -> None:
    for name, (schema, cpu, cuda) in OPS.items():
        base, _, overload = name.partition(".")
        running = torch._C._get_schema(f"aten::{base}", overload)
        assert cpu or cuda, name
        assert [a.name for a in running.arguments] == _argument_names(schema), name


def test_every_cpu_shim_has_a_kernel_registered_for_the_cpu() -> None:
    for name, (_, cpu, _) in OPS.items():
        computed = torch._C._dispatch_has_computed_kernel_for_dispatch_key(f"aten::{name}", "CPU")
        assert computed or not cpu, name


def _argument_names(schema: str) -> list[str]:
    inside = schema[schema.index("(") + 1 : schema.rindex(") ->")]
    pieces = re.split(r",\s*(?![^\[(]*[\])])", inside) if inside else []
    return [piece.split("=")[0].split()[-1] for piece in pieces if piece != "*"]
