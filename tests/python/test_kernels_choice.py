"""Kernel variants inside one symbolic specialization: chosen per call, compiled when missing."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from dynamic_helpers import specializations
from triton.backends.compiler import GPUTarget

import trident
from trident.kernels import record_launch, specialize
from trident.kernels.facts import Question, launch_facts, with_answers
from trident.kernels.launch import SymbolicInt, TensorArg
from trident.optimize import optimizer_of

pytestmark = pytest.mark.usefixtures("no_fallback")
TARGET = GPUTarget("cuda", 90, 32)


@triton.jit
def add_count(x, o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(o + i, tl.load(x + i, mask=i < n) + n, mask=i < n)


@triton.jit(do_not_specialize=["n"])
def add_count_plainly(x, o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(o + i, tl.load(x + i, mask=i < n) + n, mask=i < n)


def varying_request(kernel: Any, n: int, address: int | None = None) -> Any:
    """A launch of which `n`, and the address of `x` if given, vary."""
    x, o = torch.zeros(64), torch.zeros(64)
    request, _ = record_launch(kernel, (x, o, n), {"B": 64}, (1,), lambda tensor: 0)
    request.arguments["n"] = SymbolicInt(n, n)
    if address is not None:
        request.arguments["x"] = TensorArg(0, torch.float32, address, address)
    return request


def plain_key(kernel: Any, n: int, address: int = 0) -> str:
    """The key of what Triton compiles for these values."""
    x, o = torch.zeros(64), torch.zeros(64)
    request, _ = record_launch(kernel, (x, o, n), {"B": 64}, (1,), lambda tensor: 0)
    request.arguments["x"] = TensorArg(0, torch.float32, address)
    return specialize(request, TARGET).key


@pytest.mark.parametrize("kernel", [add_count, add_count_plainly])
@pytest.mark.parametrize(
    "value", [0, 1, 2, 16, 17, -16, -3, 2**31 - 1, 2**31 - 16, 2**31, 2**32 + 5, -(2**31) - 1]
)
@pytest.mark.parametrize("address", [0, 4, 8])
def test_the_answers_name_the_variant_that_triton_compiles(
    kernel: Any, value: int, address: int
) -> None:
    facts = launch_facts(varying_request(kernel, value, address))
    answers = {(fact.path, fact.question): fact.holds for fact in facts}
    other = with_answers(varying_request(kernel, 7, 12), answers)
    assert specialize(other, TARGET).key == plain_key(kernel, value, address)


def test_questions_follow_the_kernels_declaration() -> None:
    asked = [fact.question for fact in launch_facts(varying_request(add_count, 5, 0))]
    assert asked == [Question.ALIGNED, Question.ONE, Question.DIVISIBLE, Question.WIDE]
    asked = [fact.question for fact in launch_facts(varying_request(add_count_plainly, 5))]
    assert asked == [Question.WIDE]


def launched(x: torch.Tensor, n: int) -> torch.Tensor:
    out = torch.zeros_like(x)
    add_count[(triton.cdiv(n, 64),)](x, out, n, B=64)
    return out


def launched_eagerly(x: torch.Tensor, n: int) -> torch.Tensor:
    inside = torch.arange(x.numel(), device=x.device) < n
    return torch.where(inside, x + n, torch.zeros_like(x))


def test_one_specialization_serves_every_integer(device: torch.device) -> None:
    optimized = trident.optimize(launched)
    x = torch.arange(64.0, device=device)
    for n in (5, 6, 1, 16, 48, 0, 33, 1, 64):
        assert torch.equal(optimized(x, n), launched_eagerly(x, n)), n
    assert specializations(optimized) == 1


def test_a_missing_variant_is_compiled_once_and_said(
    device: torch.device, caplog: pytest.LogCaptureFixture
) -> None:
    optimized = trident.optimize(launched)
    x = torch.arange(64.0, device=device)
    for n in (5, 6):
        optimized(x, n)
    before = optimized.stats()
    with caplog.at_level(logging.WARNING, "trident"):
        for _ in range(3):
            optimized(x, 1)
    said = [record.message for record in caplog.records if "another variant" in record.message]
    assert len(said) == 1 and "add_count" in said[0] and "n is 1" in said[0]
    after = optimized.stats()
    # Compiling is no hit, and every call has one outcome.
    assert (after["misses"] - before["misses"], after["hits"] - before["hits"]) == (1, 2)
    assert after["specializations"] == before["specializations"]
    assert after["calls"] == after["hits"] + after["misses"]


def test_prepare_compiles_the_variant(device: torch.device) -> None:
    optimized = trident.optimize(launched)
    x = torch.arange(64.0, device=device)
    for n in (5, 6):
        optimized(x, n)
    optimized.prepare(x, 1)
    hits = optimized.stats()["hits"]
    assert torch.equal(optimized(x, 1), launched_eagerly(x, 1))
    assert optimized.stats()["hits"] == hits + 1


def test_the_generated_code_says_what_chooses_a_variant(device: torch.device) -> None:
    optimized = trident.optimize(launched)
    x = torch.arange(64.0, device=device)
    for n in (5, 6):
        optimized(x, n)
    record = optimizer_of(optimized).records[-1]
    source = open(record.source.removesuffix(".so") + ".cpp").read()
    assert "// n is 1" in source and "// n needs more than 32 bits" in source
    assert "static void choose(const int64_t* symbols, uint64_t* choices) {" in source
    assert "== 1) << 0;" in source


def test_threads_that_miss_the_same_variant_get_one_result(device: torch.device) -> None:
    optimized = trident.optimize(launched)
    x = torch.arange(64.0, device=device)
    for n in (5, 6):
        optimized(x, n)
    barrier = threading.Barrier(4)
    results: list[Any] = []

    def call(n: int) -> None:
        with torch.no_grad():
            barrier.wait()
            results.append((n, optimized(x, n)))

    threads = [threading.Thread(target=call, args=(n,)) for n in (1, 1, 7, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 4
    for n, result in results:
        assert torch.equal(result, launched_eagerly(x, n))
    assert specializations(optimized) == 1


def add_to_view(x: torch.Tensor) -> torch.Tensor:
    out = torch.zeros(x.shape, device=x.device)
    add_count[(1,)](x, out, x.numel(), B=64)
    return out


@pytest.mark.parametrize("asked", [False, True])
def test_alignment_is_no_fact_where_it_varies(
    asked: bool, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    if asked:  # as of compiled kernels
        monkeypatch.setattr("trident.kernel_choice._INTERPRETED_QUESTIONS", tuple(Question))
    optimized = trident.optimize(add_to_view)
    memory = torch.arange(128.0, device=device)
    for start in (0, 1, 2, 3, 4, 5, 8, 0):
        x = memory[start : start + 40]
        assert torch.equal(optimized(x), x + 40), start
    assert specializations(optimized) == 1
