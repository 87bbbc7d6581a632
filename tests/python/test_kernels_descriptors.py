"""Host tensor descriptors (TMA) as kernel arguments: values, parameters, what maps are made of."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
import torch
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.tools.tensor_descriptor import TensorDescriptor

import trident
from trident.kernels import compile_variant, record_launch, specialize

ROWS, COLUMNS = 32, 64


@triton.jit
def scale_kernel(source, target, factor, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    at = [tl.program_id(0) * ROWS, tl.program_id(1) * COLUMNS]
    target.store(at, source.load(at) * factor)


class Ends(NamedTuple):
    source: Any
    target: Any


@triton.jit
def scale_ends_kernel(ends, factor, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    at = [tl.program_id(0) * ROWS, tl.program_id(1) * COLUMNS]
    ends.target.store(at, ends.source.load(at) * factor)


@triton.jit
def outside_kernel(source, out, COLUMNS: tl.constexpr):
    block = source.load([0, 0])
    i = tl.arange(0, 16)
    j = tl.arange(0, COLUMNS)
    tl.store(out + i[:, None] * COLUMNS + j[None, :], block)


def grid_of(x: torch.Tensor) -> tuple[int, int]:
    return triton.cdiv(x.shape[0], ROWS), triton.cdiv(x.shape[1], COLUMNS)


def scale(x: torch.Tensor) -> torch.Tensor:
    """The usual form: descriptors made of tensors inside of the function."""
    x = x + 1  # memory of Trident's own
    out = torch.empty_like(x)
    source = TensorDescriptor.from_tensor(x, [ROWS, COLUMNS])
    target = TensorDescriptor.from_tensor(out, [ROWS, COLUMNS])
    scale_kernel[grid_of(x)](source, target, 2.0, ROWS, COLUMNS)
    return out


def scale_ends(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    blocks = [ROWS, COLUMNS]
    ends = Ends(TensorDescriptor.from_tensor(x, blocks), TensorDescriptor.from_tensor(out, blocks))
    scale_ends_kernel[grid_of(x)](ends, 3.0, ROWS, COLUMNS)
    return out


def scale_given(source: TensorDescriptor) -> torch.Tensor:
    out = torch.empty_like(source.base)
    target = TensorDescriptor.from_tensor(out, source.block_shape)
    scale_kernel[grid_of(out)](source, target, 4.0, *source.block_shape)
    return out


def outside(x: torch.Tensor, padding: str) -> torch.Tensor:
    out = torch.empty(16, 64, device=x.device)
    outside_kernel[(1,)](TensorDescriptor.from_tensor(x, [16, 64], padding), out, 64)
    return out


@pytest.fixture(autouse=True)
def no_grad() -> Any:
    with torch.no_grad():
        yield


def check_hits(function: Any, inputs: list[Any], expected: list[torch.Tensor]) -> None:
    fast = trident.optimize(function, on_unsupported="raise")
    for given, wanted in zip(inputs, expected, strict=True):
        torch.testing.assert_close(fast(given), wanted, rtol=0, atol=0)
    stats = fast.stats()
    assert (stats["misses"], stats["hits"]) == (1, len(inputs) - 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_descriptors_made_inside(dtype: torch.dtype, device: torch.device) -> None:
    inputs = [torch.randn(100, 128, device=device).to(dtype) for _ in range(3)]
    check_hits(scale, inputs, [(x + 1) * 2 for x in inputs])


def test_descriptors_in_tuples(device: torch.device) -> None:
    inputs = [torch.randn(64, 64, device=device) for _ in range(3)]
    check_hits(scale_ends, inputs, [x * 3 for x in inputs])


def test_descriptors_as_arguments(device: torch.device) -> None:
    tensors = [torch.randn(64, 64, device=device) for _ in range(3)]
    inputs = [TensorDescriptor.from_tensor(x, [ROWS, COLUMNS]) for x in tensors]
    check_hits(scale_given, inputs, [x * 4 for x in tensors])


def test_other_shapes_of_one_kernel(device: torch.device) -> None:
    fast = trident.optimize(scale, on_unsupported="raise")
    for rows in (40, 64, 40, 64):
        x = torch.randn(rows, 64, device=device)
        torch.testing.assert_close(fast(x), (x + 1) * 2)
    assert (fast.stats()["misses"], fast.stats()["hits"]) == (2, 2)


@pytest.mark.parametrize("dynamic", [False, True])
def test_what_loads_outside_give(dynamic: bool, device: torch.device) -> None:
    fast = trident.optimize(outside, on_unsupported="raise", dynamic=dynamic)
    x = torch.randn(10, 32, device=device)
    for padding, filler in (("zero", 0.0), ("nan", float("nan")), ("zero", 0.0)):
        expected = torch.full((16, 64), filler, device=device)
        expected[:10, :32] = x
        torch.testing.assert_close(fast(x, padding), expected, equal_nan=True)
    assert (fast.stats()["misses"], fast.stats()["hits"]) == (2, 1)


def test_a_misaligned_tensor_raises_as_in_triton(device: torch.device) -> None:
    def call(x: torch.Tensor) -> torch.Tensor:
        return scale_given(TensorDescriptor.from_tensor(x[1:].view(16, 64), [16, 64]))

    fast = trident.optimize(call)
    with pytest.raises(AssertionError, match="base must be 16-byte aligned"):
        fast(torch.randn(16 * 64 + 1, device=device))


def variant_for(arch: int, padding: str = "zero", rounding: bool = False) -> Any:
    x, out = torch.zeros(100, 128), torch.zeros(100, 128)
    source = TensorDescriptor(x, [100, 128], [128, 1], [ROWS, COLUMNS], padding)
    if rounding:
        source.round_f32_to_tf32 = True
    target = TensorDescriptor.from_tensor(out, [ROWS, COLUMNS])
    request, tensors = record_launch(
        scale_kernel, (source, target, 2.0, ROWS, COLUMNS), {}, (4, 2), lambda t: t.data_ptr() % 16
    )
    assert [t.data_ptr() for t in tensors] == [x.data_ptr(), out.data_ptr()]
    return specialize(request, GPUTarget("cuda", arch, 32))


def shown(variant: Any) -> list[tuple[str, str, Any]]:
    return [(param.name, param.type, param.tensor) for param in variant.params]


def test_hopper_takes_maps_sizes_and_strides() -> None:
    variant = variant_for(90, padding="nan")
    sizes = [("i32", None)] * 2 + [("i64", None)] * 2
    kinds = [(kind, tensor) for _, kind, tensor in shown(variant)]
    assert kinds == [("nvTmaDesc", 0), *sizes, ("nvTmaDesc", 1), *sizes, ("fp32", None)]
    assert [param.bits for param in variant.params[:5]] == [0, 100, 128, 128, 1]
    compiled = compile_variant(variant)
    source, target = compiled.tensor_maps
    assert (source[0], target[0]) == (0, 5) and (source[4], target[4]) == (True, False)
    for _, swizzle, element, size, _, packed, block in (source, target):
        # CU_TENSOR_MAP_DATA_TYPE_FLOAT32; a swizzle of 128 bytes holds 32 such columns.
        assert (swizzle, element, size, packed, block) == (3, 7, 4, False, [32, 32])
    # As many parameters as the compiled kernel has, with two for scratch memory behind.
    assert compiled.cubin.count(b"scale_kernel") > 0


def test_older_gpus_take_the_parts() -> None:
    variant = variant_for(80, padding="nan")
    names = [name for name, _, _ in shown(variant)]
    assert names[:6] == [
        *("source.base", "source.shape.0", "source.shape.1"),
        *("source.strides.0", "source.strides.1", "source.padding"),
    ]
    assert variant.params[0].type == "*fp32" and variant.params[5].bits == 1
    assert [p.bits for p in variant.params if p.name == "source.shape.1"] == [128, 128]
    assert compile_variant(variant).tensor_maps == []


def test_padding_and_rounding_belong_to_the_launch() -> None:
    keys = {variant_for(90).key, variant_for(90, padding="nan").key}
    assert len(keys) == 2 and variant_for(90).key in keys
    if hasattr(TensorDescriptor, "round_f32_to_tf32"):
        rounded = variant_for(90, rounding=True)
        assert rounded.key not in keys
        assert compile_variant(rounded).tensor_maps[0][2] == 11  # TFLOAT32


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8])
def test_maps_on_a_gpu_give_what_eager_triton_gives(dtype: torch.dtype) -> None:
    def call(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        source = TensorDescriptor.from_tensor(x, [ROWS, COLUMNS])
        target = TensorDescriptor.from_tensor(out, [ROWS, COLUMNS])
        scale_kernel[grid_of(x)](source, target, 2, ROWS, COLUMNS)
        return out

    inputs = [torch.randn(100, 128, device="cuda").mul(9).to(dtype) for _ in range(20)]
    check_hits(call, inputs, [call(x) for x in inputs])
