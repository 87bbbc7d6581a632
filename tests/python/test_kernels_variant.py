"""Specialization against Triton's own `JITFunction.run(warmup=True)` for sm_90, without a GPU."""

from __future__ import annotations

import linecache
import math
import struct
from typing import Any, NamedTuple

import pytest
import torch
import triton
import triton.language as tl
from triton.runtime.driver import driver

from trident.errors import UnsupportedError
from trident.kernels import (
    DEFAULT_TARGET,
    Variant,
    captured_globals,
    compile_variant,
    compile_variants,
    is_interpreted,
    pack_scalar,
    record_launch,
    specialize,
    unpack_scalar,
)


@triton.jit
def general(a, b, c, KIND: tl.constexpr = "plain"):
    pass


pytestmark = pytest.mark.skipif(
    is_interpreted(general), reason="nothing is compiled under TRITON_INTERPRET=1"
)


@triton.jit
def fill(x, B: tl.constexpr):
    tl.store(x + tl.arange(0, B), 1.0)


class Sm90Driver:
    """What Triton asks of a driver up to the launch."""

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_current_target(self) -> Any:
        return DEFAULT_TARGET


@pytest.fixture(autouse=True)
def sm90(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "_active", Sm90Driver())


def variant_of(kernel: Any, *args: Any, **kwargs: Any) -> Variant:
    request, _ = record_launch(kernel, args, kwargs, (1,), lambda x: x.data_ptr() % 16)
    return specialize(request, DEFAULT_TARGET)


def check_against_triton(kernel: Any, *args: Any, **kwargs: Any) -> Variant:
    """Asserts that our variant is what Triton compiles, down to the binary; returns it."""
    variant = variant_of(kernel, *args, **kwargs)
    expected = kernel.run(*args, grid=(1,), warmup=True, **kwargs)
    assert variant.signature == expected.src.signature
    assert variant.constexprs == expected.src.constants
    assert {path: value for path, value in variant.attrs.items() if value} == {
        path: value for path, value in expected.src.attrs.items() if value
    }
    compiled = compile_variant(variant)
    assert compiled.cubin == expected.asm["cubin"]
    metadata = expected.metadata
    assert compiled.name == metadata.name
    assert (compiled.shared, compiled.num_warps) == (metadata.shared, metadata.num_warps)
    assert compiled.cluster == (metadata.num_ctas, 1, 1)
    assert [param.type for param in variant.params] == leaves(expected.src.signature.values())
    return variant


def leaves(types: Any) -> list[str]:
    """Flattened without constexprs: what Triton's launcher passes."""
    flat: list[str] = []
    for item in types:
        flat += leaves(item) if isinstance(item, tuple) else [item] if item != "constexpr" else []
    return flat


def types_and_bits(variant: Variant) -> list[tuple[str, int | None, int]]:
    return [(param.type, param.tensor, param.bits) for param in variant.params]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1, None),
        (0, ("i32", 0)),
        (16, ("i32", 16)),
        (2**31 - 1, ("i32", 2**31 - 1)),
        (2**31, ("i64", 2**31)),
        (2**63 - 1, ("i64", 2**63 - 1)),
        (2**63, ("u64", 2**63)),
        (2**64 - 1, ("u64", 2**64 - 1)),
        (-1, ("i32", 2**32 - 1)),
        (-(2**31), ("i32", 2**31)),
        (-(2**31) - 1, ("i64", 2**64 - 2**31 - 1)),
        (-(2**63), ("i64", 2**63)),
        (True, ("u1", 1)),
        (False, ("u1", 0)),
        (1.0, ("fp32", 0x3F800000)),
        (-0.0, ("fp32", 0x80000000)),
        (0.1, ("fp32", struct.unpack("<I", struct.pack("<f", 0.1))[0])),
        (1e39, ("fp32", 0x7F800000)),
        (float("-inf"), ("fp32", 0xFF800000)),
        (float("nan"), ("fp32", 0x7FC00000)),
        (None, None),
    ],
)
def test_scalars_by_value(value: Any, expected: tuple[str, int] | None) -> None:
    variant = check_against_triton(general, torch.zeros(4), value, 3)
    scalar = [] if expected is None else [(expected[0], None, expected[1])]
    assert types_and_bits(variant) == [("*fp32", 0, 0), *scalar, ("i32", None, 3)]


@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.bfloat16, torch.int64, torch.bool, torch.uint8]
)
@pytest.mark.parametrize("offset", [0, 1])
def test_tensors_by_dtype_and_alignment(dtype: torch.dtype, offset: int) -> None:
    x = torch.zeros(64, dtype=dtype)[offset:]
    variant = check_against_triton(general, x, x, x)
    assert [param.tensor for param in variant.params] == [0, 1, 2]
    assert bool(variant.attrs[(0,)]) == (offset == 0)


@triton.jit(do_not_specialize=["n"], do_not_specialize_on_alignment=["m", "p"])
def unspecialized(p, n, m, k: tl.int64, f: tl.float16, d: tl.float64, q, b: tl.int1):
    pass


def test_annotations_and_do_not_specialize() -> None:
    x = torch.zeros(4)
    variant = check_against_triton(unspecialized, x, 1, 16, 1, 1.5, 3, x, True)
    assert types_and_bits(variant) == [
        ("*fp32", 0, 0),
        ("i32", None, 1),
        ("i32", None, 16),
        ("i64", None, 1),
        ("fp16", None, 0x3E00),
        ("fp64", None, struct.unpack("<Q", struct.pack("<d", 3.0))[0]),
        ("*fp32", 1, 0),
        ("u1", None, 1),
    ]


def test_annotated_pointers() -> None:
    kernel = jit_from_source(
        "def kernel(p: '*fp32', q: 'const *fp16', n: tl.constexpr = None):\n    pass\n",
        "<annotated pointers>",
        {"__name__": "generated", "tl": tl},
    )
    x = torch.zeros(4, dtype=torch.int32)
    variant = check_against_triton(kernel, None, x)
    assert types_and_bits(variant) == [("*fp32", None, 0), ("*kfp16", 0, 0)]
    variant = check_against_triton(kernel, 64, None)
    assert types_and_bits(variant) == [("*fp32", None, 64), ("*kfp16", None, 0)]


class Pair(NamedTuple):
    tensor: Any
    count: Any


def test_tuples_are_flattened() -> None:
    x, y = torch.zeros(4), torch.zeros(4, dtype=torch.float16)
    variant = check_against_triton(general, (x, 1, (2.0, None)), Pair(y, 7), ())
    assert [(param.name, param.type, param.tensor) for param in variant.params] == [
        ("a.0", "*fp32", 0),
        ("a.2.0", "fp32", None),
        ("b.tensor", "*fp16", 1),
        ("b.count", "i32", None),
    ]


@pytest.mark.parametrize(
    "kind", [True, False, 1, 1.0, -0.0, "text", None, tl.float32, tl.constexpr(4), (1, "a", None)]
)
def test_constexpr_kinds(kind: Any) -> None:
    variant = check_against_triton(general, torch.zeros(4), 5, 6, KIND=kind)
    assert variant.constexprs[(3,)] == kind


def test_keys_tell_constexprs_apart_that_compare_equal() -> None:
    x = torch.zeros(4)
    kinds = [True, 1, 1.0, 0.0, -0.0, False, 0, "1", None, tl.float32, "fp32", (1,), (True,)]
    keys = [variant_of(general, x, 5, 6, KIND=kind).key for kind in kinds]
    assert len(set(keys)) == len(kinds)


def test_one_variant_serves_other_values_of_the_same_class() -> None:
    x = torch.zeros(64)
    first = variant_of(general, x, 5, 2.0)
    assert first.key == variant_of(general, torch.ones(64), 7, 3.0).key
    for other in ((x, 16, 2.0), (x[1:], 5, 2.0), (x.half(), 5, 2.0), (x, 5, 2), (x, 1, 2.0)):
        assert variant_of(general, *other).key != first.key
    assert variant_of(general, x, 5, 2.0, num_warps=8).key != first.key


def test_options_reach_the_compiler() -> None:
    x = torch.zeros(4)
    variant = check_against_triton(fill, x, B=512, num_warps=8, num_stages=2, num_ctas=2)
    compiled = compile_variant(variant)
    assert compiled.num_warps == 8 and compiled.cluster == (2, 1, 1) and compiled.num_ctas == 2
    with pytest.raises(AssertionError, match="power of 2"):
        variant_of(general, x, 2, 3, num_warps=3)


def jit_from_source(source: str, filename: str, namespace: dict[str, Any]) -> Any:
    """A kernel whose source is this text; `inspect` finds it through linecache."""
    linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
    exec(compile(source, filename, "exec", dont_inherit=True), namespace)
    return triton.jit(namespace["kernel"])


@pytest.mark.parametrize("count", [0, 1, 64, 65, 128, 129])
def test_any_number_of_parameters(count: int) -> None:
    names = ", ".join(f"p{i}" for i in range(count))
    kernel = jit_from_source(
        f"def kernel({names}):\n    pass\n", f"<count {count}>", {"__name__": "generated"}
    )
    variant = check_against_triton(
        kernel, *(torch.zeros(4) if i % 2 else i + 2 for i in range(count))
    )
    assert len(variant.params) == count
    assert [p.tensor for p in variant.params if p.tensor is not None] == list(range(count // 2))


def test_two_kernels_of_one_name_do_not_collide() -> None:
    text = "def kernel(x):\n    tl.store(x, {})\n"
    space: dict[str, Any] = {"__name__": "generated", "tl": tl}
    one, two = (jit_from_source(text.format(v), f"<same {v}>", dict(space)) for v in (1.0, 2.0))
    x = torch.zeros(4)
    first, second = variant_of(one, x), variant_of(two, x)
    assert one._fn_name == two._fn_name and first.key != second.key
    assert compile_variant(first).cubin != compile_variant(second).cubin


@triton.jit
def helper(value):
    return value + 1


def make_closure(amount: int, function: Any) -> Any:
    shift = tl.constexpr(amount)

    @triton.jit
    def kernel(x):
        tl.store(x, function(tl.load(x)) + shift)

    return kernel


def test_captured_values_and_helpers_are_part_of_the_key() -> None:
    @triton.jit
    def other(value):
        return value + 2

    x = torch.zeros(4)
    variants = [variant_of(make_closure(*of), x) for of in ((3, helper), (4, helper), (3, other))]
    assert len({variant.key for variant in variants}) == 3
    assert variant_of(make_closure(3, helper), x).key == variants[0].key
    assert len({compiled.cubin for compiled in compile_variants(variants)}) == 3


SHIFT = tl.constexpr(3)


@triton.jit
def uses_global(x):
    tl.store(x, tl.load(x) + SHIFT)


def test_changed_captured_global_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.zeros(4)
    before = variant_of(uses_global, x)
    assert [(name, value) for name, _, value in captured_globals(uses_global)] == [("SHIFT", SHIFT)]
    monkeypatch.setitem(globals(), "SHIFT", tl.constexpr(4))
    with pytest.raises(RuntimeError, match="Global variable SHIFT has changed"):
        variant_of(uses_global, x)
    monkeypatch.undo()
    assert variant_of(uses_global, x).key == before.key


@triton.jit
def broken(x, n):
    tl.store(x, undefined_name)  # noqa: F821


def test_compile_errors_are_tritons_and_not_remembered() -> None:
    variant = variant_of(broken, torch.zeros(4), 4)
    for _ in range(2):
        with pytest.raises(triton.CompilationError, match="undefined_name"):
            compile_variant(variant)
    with pytest.raises(triton.CompilationError):
        compile_variants([variant, variant_of(general, torch.zeros(4), 2, 3)])


def test_compiles_once() -> None:
    x = torch.zeros(4)
    first, second = variant_of(general, x, 50, 60), variant_of(general, x, 51, 62)
    assert compile_variant(first) is compile_variant(second)
    one, two = compile_variants([first, second])
    assert one is two


def test_shared_memory_and_scratch_come_from_the_metadata() -> None:
    @triton.jit
    def total(x, y, B: tl.constexpr):
        tl.store(y, tl.sum(tl.load(x + tl.arange(0, B))))

    x = torch.zeros(1024)
    compiled = compile_variant(check_against_triton(total, x, x, 1024))
    assert compiled.shared > 0 and compiled.global_scratch_size == 0
    assert compiled.name == "total" and compiled.cubin[:4] == b"\x7fELF"
    assert not compiled.launch_pdl and not compiled.cooperative


def test_launch_attributes_and_scratch_memory_of_made_descriptors() -> None:
    @triton.jit
    def double(x, y, rows, columns, R: tl.constexpr, C: tl.constexpr):
        source = tl.make_tensor_descriptor(x, [rows, columns], [columns, 1], [R, C])
        target = tl.make_tensor_descriptor(y, [rows, columns], [columns, 1], [R, C])
        target.store([0, 0], source.load([0, 0]) * 2)

    x = torch.zeros(16, 64)
    options = {"launch_pdl": True, "launch_cooperative_grid": True, "maxnreg": 64}
    variant = variant_of(double, x, x, 16, 64, 16, 64, **options)
    compiled = compile_variant(variant)
    assert variant.options.maxnreg == 64 and compiled.launch_pdl and compiled.cooperative
    # Two maps of 128 bytes each.
    assert compiled.global_scratch_size >= 256 and compiled.global_scratch_align >= 64
    assert variant_of(double, x, x, 16, 64, 16, 64).key != variant.key


def test_tensor_for_a_scalar_parameter_is_refused() -> None:
    x = torch.zeros(4)
    with pytest.raises(TypeError, match="parameter k of type i64 was given a tensor"):
        variant_of(unspecialized, x, 1, 1, x, 1.0, 1.0, x, True)


def test_gluon_is_refused() -> None:
    gluon = pytest.importorskip("triton.experimental.gluon")

    @gluon.jit
    def kernel():
        pass

    with pytest.raises(UnsupportedError, match="Gluon"):
        record_launch(kernel, (), {}, (1,), lambda _: 0)


@pytest.mark.parametrize(
    ("kind", "value", "bits"),
    [
        ("bf16", 1.0, 0x3F80),
        ("bf16", float("inf"), 0x7F80),
        ("fp16", -2.0, 0xC000),
        ("fp64", math.pi, struct.unpack("<Q", struct.pack("<d", math.pi))[0]),
        ("i8", -1, 0xFF),
        ("u16", 65535, 65535),
        ("i64", -(2**63), 2**63),
        ("u1", True, 1),
        ("*fp32", 2**64 - 16, 2**64 - 16),
    ],
)
def test_packing_round_trips(kind: str, value: Any, bits: int) -> None:
    assert pack_scalar(kind, value) == bits
    assert unpack_scalar(kind, bits) == value


def test_packing_refuses_what_the_launcher_refuses() -> None:
    for kind, value, error in (
        ("i32", 1.5, TypeError),
        ("fp32", "1", TypeError),
        ("i64", 2**64, OverflowError),
        ("fp16", 1e6, OverflowError),
    ):
        with pytest.raises(error):
            pack_scalar(kind, value)
    assert math.isnan(unpack_scalar("fp32", pack_scalar("fp32", float("nan"))))


def test_two_threads_that_parse_at_the_same_time_are_no_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    original, calls = triton.compile, []

    def compile_(*args: Any, **kwargs: Any) -> Any:
        calls.append(args)
        if len(calls) <= 2:  # as CPython 3.11 does
            raise SystemError("AST constructor recursion depth mismatch (before=36, after=79)")
        return original(*args, **kwargs)

    monkeypatch.setattr(triton, "compile", compile_)
    variant = variant_of(fill, torch.zeros(4), B=1024)
    assert compile_variant(variant).cubin and len(calls) == 3
