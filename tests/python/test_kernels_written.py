"""Which tensors a kernel may write, by its Triton IR: compiled for sm_90, without a GPU."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
import sympy
import torch
import triton
import triton.language as tl
from pipeline_helpers import capture_function
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.tools.tensor_descriptor import TensorDescriptor

from trident.kernel_choice import ChosenKernels
from trident.kernels import (
    DEFAULT_TARGET,
    Variant,
    compile_variant,
    is_interpreted,
    only_read,
    record_launch,
    route_launches,
    specialize,
)
from trident.kernels.facts import launch_facts
from trident.kernels.launch import SymbolicInt
from trident.kernels.written import written_parameters


@triton.jit
def add(x, y, out, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out + i, tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n), mask=i < n)


pytestmark = pytest.mark.skipif(
    is_interpreted(add), reason="nothing is compiled under TRITON_INTERPRET=1"
)


def names_read(variant: Variant) -> set[str]:
    """The pointer parameters that a variant only reads."""
    compiled = compile_variant(variant)
    pointers = {i for i, param in enumerate(variant.params) if param.tensor is not None}
    assert compiled.written <= pointers
    return {variant.params[i].name for i in pointers - compiled.written}


def read_by(kernel: Any, *args: Any, target: GPUTarget = DEFAULT_TARGET, **kwargs: Any) -> set[str]:
    request, _ = record_launch(kernel, args, kwargs, (1,), lambda x: x.data_ptr() % 16)
    return names_read(specialize(request, target))


class Program:
    """Takes what a loaded program is given."""

    def add_variant(self, launch: int, choice: int, kernel: Any, positions: list[int]) -> None:
        self.present = kernel

    def serve_variants(self, compile_missing: Any) -> None:
        self.compile = compile_missing


def floats(count: int = 64) -> torch.Tensor:
    return torch.zeros(count)


def test_loads_read_and_stores_write() -> None:
    assert read_by(add, floats(), floats(), floats(), 64, 64) == {"x", "y"}


def test_tensors_of_a_launch_follow_all_their_parameters() -> None:
    x, y, out = floats(), floats(), floats()

    def read_of(*tensors: torch.Tensor) -> list[bool]:
        request, given = record_launch(
            add, (*tensors, 64, 64), {}, (1,), lambda t: t.data_ptr() % 16
        )
        positions = only_read(specialize(request, DEFAULT_TARGET))
        return [at in positions for at in range(len(given))]

    assert read_of(x, y, out) == [True, True, False]
    # In place: whatever way the list names the tensor, one entry of it is written.
    assert not all(read_of(x, y, x)) and any(read_of(x, y, x))


@triton.jit
def in_place(x, w, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(x + i, tl.load(x + i) * tl.load(w + i))


@triton.jit
def count(x, sums, old, B: tl.constexpr):
    total = tl.atomic_add(sums, tl.sum(tl.load(x + tl.arange(0, B))))
    tl.store(old, total)


@triton.jit
def lock(x, flag, out):
    while tl.atomic_cas(flag, 0, 1) == 1:
        pass
    tl.store(out, tl.load(x))


def test_in_place_and_atomics() -> None:
    assert read_by(in_place, floats(), floats(), 64) == {"w"}
    assert read_by(count, floats(), floats(), floats(), 64) == {"x"}
    assert read_by(lock, floats(), torch.zeros(1, dtype=torch.int32), floats()) == {"x"}


@triton.jit
def matmul(a, b, c, m, n, k, sa, sb, sc, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    rows, columns, inner = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    a_at = a + rows[:, None] * sa + inner[None, :]
    b_at = b + inner[:, None] * sb + columns[None, :]
    total = tl.zeros((M, N), dtype=tl.float32)
    for _ in range(0, tl.cdiv(k, K)):
        total = tl.dot(tl.load(a_at), tl.load(b_at), total)
        a_at += K
        b_at += K * sb
    tl.store(c + rows[:, None] * sc + columns[None, :], total)


@triton.jit
def swapping(a, b, c, n):
    p, q = a, b
    for _ in range(n):
        p, q = q, p
    tl.store(p, tl.load(c))


@triton.jit
def rotating(a, b, c, d, n):
    p, q, r = a, b, c
    for _ in range(n):
        p, q, r = q, r, p
    tl.store(p, tl.load(d))


@triton.jit
def rotating_while(a, b, c, n):
    p = a
    while n > 0:
        tl.store(p, tl.load(c))
        p = b
        n -= tl.load(c).to(tl.int32)


@triton.jit
def storing_in_a_loop(a, b, out, n):
    p = a
    q = out
    for _ in range(n):
        tl.store(q, tl.load(p) + tl.load(b))
        p += 1
        q += 1


@triton.jit
def storing_behind_a_loop(a, b, n):
    p = a
    for _ in range(n):
        p = p + tl.load(b).to(tl.int32)
    tl.store(p, 1.0)


@triton.jit
def storing_if_no_turn(a, b, c, n):
    p = a
    for _ in range(n):
        p = b
    tl.store(p, tl.load(c))


@triton.jit
def chasing(a, b, out, n):
    p = a
    while n > 0:
        p += tl.load(p).to(tl.int32)
        n -= tl.load(b).to(tl.int32)
    tl.store(out, tl.load(p))


@triton.jit
def chasing_and_storing(a, b, n):
    p = a
    q = b
    while n > tl.load(q):
        tl.store(p, 1.0)
        p += 1
        q += 1
        n -= 1


def test_pointers_carried_by_loops() -> None:
    a, b, c = (torch.zeros(64, 64, dtype=torch.float16) for _ in range(3))
    sizes = (64, 64, 64, 64, 64, 64)
    assert read_by(matmul, a, b, c, *sizes, M=64, N=64, K=32) == {"a", "b"}
    assert read_by(swapping, floats(), floats(), floats(), 5) == {"c"}
    assert read_by(rotating, floats(), floats(), floats(), floats(), 5) == {"d"}
    assert read_by(rotating_while, floats(), floats(), floats(), 5) == {"c"}
    assert read_by(storing_in_a_loop, floats(), floats(), floats(), 5) == {"a", "b"}
    assert read_by(storing_behind_a_loop, floats(), floats(), 5) == {"b"}
    assert read_by(storing_if_no_turn, floats(), floats(), floats(), 5) == {"c"}
    assert read_by(chasing, floats(), floats(), floats(), 5) == {"a", "b"}
    assert read_by(chasing_and_storing, floats(), floats(), 5) == {"b"}


@triton.jit
def chosen(a, b, c, out, n, B: tl.constexpr):
    i = tl.arange(0, B)
    p = tl.where(i < n, a + i, b + i)
    tl.store(out + i, tl.load(p) + tl.load(c + i))


@triton.jit
def chosen_and_stored(a, b, c, n, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(tl.where(i < n, a + i, b + i), tl.load(c + i))


@triton.jit
def branches(a, b, c, out, n):
    if n > 7:
        p = a
        q = out
    else:
        p = b
        q = c
    tl.store(q, tl.load(p))


@triton.jit
def stored_behind_branches(a, b, c, n):
    if n > 7:
        p = a + tl.load(c).to(tl.int32)
    else:
        p = b + tl.load(c + 1).to(tl.int32)
    tl.store(p, 1.0)


@triton.jit
def sometimes(a, b, out, n):
    if n > 7:
        tl.store(b, tl.load(a))
    tl.store(out, tl.load(b))


@triton.jit
def early(a, b, out, n):
    if n == 7:
        tl.store(out, tl.load(a))
        return
    tl.store(b, tl.load(a) + 1)


@triton.jit
def early_alike(a, b, out, n):
    # Both ways become one block of code, which takes the pointers as arguments.
    if n == 7:
        tl.store(out, tl.load(a))
        return
    tl.store(a, tl.load(b))


def test_selects_and_branches() -> None:
    assert read_by(chosen, floats(), floats(), floats(), floats(), 5, 64) == {"a", "b", "c"}
    assert read_by(chosen_and_stored, floats(), floats(), floats(), 5, 64) == {"c"}
    assert read_by(branches, floats(), floats(), floats(), floats(), 5) == {"a", "b"}
    assert read_by(stored_behind_branches, floats(), floats(), floats(), 5) == {"c"}
    assert read_by(sometimes, floats(), floats(), floats(), 5) == {"a"}
    assert read_by(early, floats(), floats(), floats(), 5) == {"a"}
    assert read_by(early_alike, floats(), floats(), floats(), 5) == set()


@triton.jit
def first_alone(a, b, c, n):
    tl.store(a, tl.load(c))
    if n != 1:
        tl.store(b, tl.load(c))


def test_variants_of_one_kernel_may_write_different_tensors() -> None:
    assert read_by(first_alone, floats(), floats(), floats(), 1) == {"b", "c"}
    assert read_by(first_alone, floats(), floats(), floats(), 2) == {"c"}


@triton.jit
def copied_blocks(x, out, n, B: tl.constexpr):
    source = tl.make_tensor_descriptor(x, [n, B], [B, 1], [16, B])
    target = tl.make_tensor_descriptor(out, [n, B], [B, 1], [16, B])
    for row in range(0, n, 16):
        target.store([row, 0], source.load([row, 0]))


@triton.jit
def summed_blocks(x, y, out, n, B: tl.constexpr):
    source = tl.make_tensor_descriptor(x, [n, B], [B, 1], [16, B])
    target = tl.make_tensor_descriptor(out, [n, B], [B, 1], [16, B])
    target.atomic_add([0, 0], source.load([0, 0]) + tl.load(y))


@triton.jit
def copied_by_descriptors(source, target, bias, B: tl.constexpr):
    block = source.load([0, 0]) + tl.load(bias)
    target.store([0, 0], block)


@pytest.mark.parametrize("arch", [80, 90])
def test_descriptors(arch: int) -> None:
    target = GPUTarget("cuda", arch, 32)
    x, out = torch.zeros(64, 64), torch.zeros(64, 64)
    assert read_by(copied_blocks, x, out, 64, 64, target=target) == {"x"}
    source, sink = (TensorDescriptor.from_tensor(t, [16, 64]) for t in (x, out))
    suffix = "" if arch >= 90 else ".base"
    read = {f"source{suffix}", "bias"}
    assert read_by(copied_by_descriptors, source, sink, floats(), 64, target=target) == read
    if arch >= 90:
        assert read_by(summed_blocks, x, floats(), out, 64, 64, target=target) == {"x", "y"}


@pytest.mark.skipif(not hasattr(tl, "make_block_ptr"), reason="no block pointers in this Triton")
def test_block_pointers() -> None:
    @triton.jit
    def advancing(x, out, n, B: tl.constexpr):
        source = tl.make_block_ptr(x, (n, B), (B, 1), (0, 0), (16, B), (1, 0))
        target = tl.make_block_ptr(out, (n, B), (B, 1), (0, 0), (16, B), (1, 0))
        for _ in range(0, n, 16):
            tl.store(target, tl.load(source))
            source = tl.advance(source, (16, 0))
            target = tl.advance(target, (16, 0))

    assert read_by(advancing, torch.zeros(64, 64), torch.zeros(64, 64), 64, 64) == {"x"}


@triton.jit(noinline=True)
def helper(p, q):
    tl.store(p, tl.load(q))


@triton.jit
def calling(a, b, c, out):
    helper(a, b)
    tl.store(out, tl.load(c))


@triton.jit
def asking(x, y, out, B: tl.constexpr):
    i = tl.arange(0, B)
    value = tl.inline_asm_elementwise(
        "ld.global.f32 $0, [$1];", "=f,l", [x + i], dtype=tl.float32, is_pure=True, pack=1
    )
    tl.store(out + i, value + tl.load(y + i))


@triton.jit
def doing_anything(x, out, B: tl.constexpr):
    i = tl.arange(0, B)
    value = tl.inline_asm_elementwise(
        "mov.b32 $0, $1;", "=r,r", [i], dtype=tl.int32, is_pure=False, pack=1
    )
    tl.store(out + i, tl.load(x + value))


@triton.jit
def computing(x, out, B: tl.constexpr):
    i = tl.arange(0, B)
    value = tl.inline_asm_elementwise(
        "mov.b32 $0, $1;", "=r,r", [i], dtype=tl.int32, is_pure=True, pack=1
    )
    tl.store(out + i, tl.load(x + value))


@triton.jit
def following(table, x, out):
    there = tl.load(table).to(tl.pointer_type(tl.float32))
    tl.store(out, tl.load(x) + tl.load(there))


@triton.jit
def showing(x, y, out):
    tl.store(out, x.to(tl.int64) + tl.load(y).to(tl.int64))


@triton.jit
def waiting(flag, x, out):
    while tl.load(flag, volatile=True) == 0:
        pass
    tl.store(out, tl.load(x))


@triton.jit
def past_caches(flag, x, out):
    tl.store(out, tl.load(x) + tl.load(flag, cache_modifier=".cv"))


def test_what_is_not_seen_through_counts_as_written() -> None:
    assert read_by(calling, floats(), floats(), floats(), floats()) == {"c"}
    assert read_by(asking, floats(), floats(), floats(), 64) == {"y"}
    assert read_by(doing_anything, floats(), floats(), 64) == set()
    assert read_by(computing, floats(), floats(), 64) == {"x"}
    longs = torch.zeros(4, dtype=torch.int64)
    assert read_by(following, longs, floats(), floats()) == set()
    assert read_by(showing, floats(), floats(), longs) == {"y"}
    assert read_by(waiting, floats(), floats(), floats()) == {"x"}
    assert read_by(past_caches, floats(), floats(), floats()) == set()


@pytest.mark.parametrize(
    ("present", "later", "told"), [(1, 2, True), (2, 1, False), (2, 16, False)]
)
def test_a_variant_that_writes_more_is_told_before_it_runs(
    present: int, later: int, told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trident.kernel_choice.native_kernel", lambda variant, driver: variant)
    monkeypatch.setattr("trident.kernel_choice.current_target", lambda: DEFAULT_TARGET)
    request, _ = record_launch(
        first_alone, (floats(), floats(), floats(), present), {}, (1,), lambda x: 0
    )
    request.arguments["n"] = SymbolicInt(present, sympy.Symbol("n0", integer=True))
    capture = capture_function(lambda x: x + 1, [floats()])
    capture.launches, capture.device = [request], torch.device("cuda")
    chosen = ChosenKernels(capture)
    assert chosen.launches[0].only_read == ({1, 2} if present == 1 else {2})

    program = Program()
    calls: list[str] = []
    chosen.serve(program, [0], lambda: calls.append("writes more"))
    assert not calls
    request.arguments["n"] = SymbolicInt(later, later)
    choice = sum(fact.holds << bit for bit, fact in enumerate(launch_facts(request)))
    variant, _ = program.compile(0, choice)
    assert ("b" in names_read(variant)) == (later == 1)
    assert calls == ["writes more"] * told


class Ends(NamedTuple):
    source: Any
    target: Any


@triton.jit
def tuples(ends, pair, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(ends.target + i, tl.load(ends.source + i) + tl.load(pair[0]))
    tl.store(pair[1], tl.load(pair[0]))


def test_members_of_tuples() -> None:
    read = read_by(tuples, Ends(floats(), floats()), (floats(), floats()), 64)
    assert read == {"ends.source", "pair.0"}


def test_ir_that_cannot_be_relied_on() -> None:
    request, _ = record_launch(
        add, (floats(), floats(), floats(), 64, 64), {}, (1,), lambda x: x.data_ptr() % 16
    )
    variant = specialize(request, DEFAULT_TARGET)
    source = triton.compiler.ASTSource(add, variant.signature, variant.constexprs, variant.attrs)
    text = triton.compile(source, DEFAULT_TARGET, variant.options.__dict__).asm["ttir"]
    types = [param.type for param in variant.params]

    def written(text: str | None, name: str = "add", types: list[str] = types) -> set[int]:
        return set(written_parameters(text, name, types, DEFAULT_TARGET))

    assert types == ["*fp32", "*fp32", "*fp32", "i32"]
    assert written(text) == {2}
    assert written(None) == {0, 1, 2}
    assert written("module { what }") == {0, 1, 2}
    assert written(text, name="other") == {0, 1, 2}
    assert written(text, types=[*types, "i32"]) == {0, 1, 2}
    assert written(text, types=["i64", *types[1:]]) == {1, 2}


def test_a_kernel_whose_stages_may_be_replaced(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    @triton.jit
    def doubled(x, out):
        tl.store(out, tl.load(x) * 2)

    monkeypatch.setattr(knobs.cache, "override_dir", str(tmp_path))
    with knobs.compilation.scope():
        knobs.compilation.override = True
        assert read_by(doubled, floats(), floats()) == set()


def variants_launched(function: Any) -> list[Variant]:
    """The variants of the launches that a function does; none of them runs."""
    variants = []

    def handler(kernel: Any, args: tuple[Any, ...], kwargs: dict[str, Any], grid: Any) -> None:
        request, _ = record_launch(kernel, args, kwargs, grid, lambda x: x.data_ptr() % 16)
        variants.append(specialize(request, DEFAULT_TARGET))

    with route_launches(handler):
        function()
    return variants


def test_ligers_kernels() -> None:
    pytest.importorskip("liger_kernel")
    from liger_kernel.ops.rms_norm import LigerRMSNormFunction
    from liger_kernel.ops.rope import LigerRopeFunction
    from liger_kernel.ops.swiglu import LigerSiLUMulFunction

    x, w = torch.randn(3, 5, 48), torch.randn(48)
    (norm,) = variants_launched(lambda: LigerRMSNormFunction.apply(x, w, 1e-6, 0.0, "llama", False))
    assert {"X_ptr", "W_ptr"} <= names_read(norm)
    assert {"Y_ptr", "RSTD_ptr"}.isdisjoint(names_read(norm))
    (gated,) = variants_launched(lambda: LigerSiLUMulFunction.apply(x, x.clone()))
    assert names_read(gated) == {"a_ptr", "b_ptr"}
    q, k = torch.randn(2, 4, 6, 16), torch.randn(2, 2, 6, 16)
    cos, sin = torch.randn(1, 6, 16), torch.randn(1, 6, 16)
    (rope,) = variants_launched(lambda: LigerRopeFunction.apply(q, k, cos, sin))
    assert names_read(rope) == {"cos", "sin"}


def test_an_autotuned_matmul() -> None:
    tuned = triton.autotune(
        [triton.Config({"M": 64, "N": 64, "K": size}, num_stages=3) for size in (32, 64)],
        key=["k"],
    )(matmul)
    a, b, c = (torch.zeros(64, 64, dtype=torch.float16) for _ in range(3))
    for config in tuned.configs:
        read = read_by(tuned.fn, a, b, c, 64, 64, 64, 64, 64, 64, **config.all_kwargs())
        assert read == {"a", "b"}
