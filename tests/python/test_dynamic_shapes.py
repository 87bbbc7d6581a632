"""Symbolic sizes: one specialization serves every length, and only calls that it is right for."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import trident
from trident.errors import UnsupportedError
from trident.ir import expressions
from trident.optimize import optimizer_of


def optimize(function: Any) -> Any:
    return trident.optimize(function, dynamic=True)


def specializations(optimized: Any) -> int:
    return optimized.stats()["specializations"]


def flat(result: Any) -> list[Any]:
    if isinstance(result, (tuple, list)):
        return [each for item in result for each in flat(item)]
    return [result]


def agree(
    optimized: Callable[..., Any], function: Callable[..., Any], make: Callable[[], tuple[Any, ...]]
) -> None:
    """Calls both with equal arguments and compares results, geometry and what was written."""
    torch.manual_seed(0)
    mine = make()
    torch.manual_seed(0)
    theirs = make()
    got, expected = flat(optimized(*mine)), flat(function(*theirs))
    assert len(got) == len(expected)
    for a, b in zip([*got, *mine], [*expected, *theirs], strict=True):
        assert type(a) is type(b)
        if isinstance(a, torch.Tensor):
            torch.testing.assert_close(a, b, rtol=0, atol=0, equal_nan=True)
            assert (a.shape, a.stride(), a.dtype) == (b.shape, b.stride(), b.dtype)
        else:
            assert a == b


@pytest.fixture(autouse=True)
def strict() -> Any:
    """Without gradients, and a fallback is a failure."""
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        yield


@pytest.fixture(autouse=True)
def sizes_found_by_comparison(request: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the attempt to leave all sizes open: the first length is fixed, the second is not."""
    if request.node.get_closest_marker("all_sizes") is None:
        monkeypatch.setattr("trident.miss.all_soft_words", lambda facts: None)


LENGTHS = [5, 7, 9, 2, 64, 33, 3, 16, 100]


def sliced(x: torch.Tensor) -> Any:
    return x[1:], x[:, ::2].contiguous(), x[-2:] + 1


def reshaped(x: torch.Tensor) -> Any:
    return x.reshape(-1, 2).t().contiguous(), x.view(x.shape[0] * 4)[1:], x.flatten().unsqueeze(0)


def expanded(x: torch.Tensor) -> Any:
    return x[:, :1].expand(x.shape[0], 6) * 2, x.unsqueeze(0).expand(3, -1, -1)


def in_place(x: torch.Tensor) -> Any:
    x[1:].mul_(2)
    x.add_(x.shape[0])
    return x.sum(0), x


def made(x: torch.Tensor) -> Any:
    n = x.shape[0]
    grid = torch.arange(n)
    return grid, torch.zeros(n, 2) + n, torch.full((n,), 3.0), torch.ones(2, n).tril(), n


def reduced(x: torch.Tensor) -> Any:
    return x.sum(0), x.mean(1), x.amax(0, keepdim=True) + 1, x.cumsum(0), x.std()


def gathered(x: torch.Tensor) -> Any:
    index = torch.arange(x.shape[0] - 1, -1, -1)
    parts = (x.chunk(2, 1), x.flip(0), torch.stack([x, x]), x.repeat(2, 1), x.triu())
    return x[index], x.index_select(0, index), *parts


def branching(x: torch.Tensor) -> Any:
    return x * 2 if x.shape[0] > 8 else x + x.shape[0]


UNARY = [sliced, reshaped, expanded, in_place, made, reduced, gathered]


@pytest.mark.parametrize("function", UNARY, ids=lambda f: f.__name__)
def test_one_specialization_serves_every_length(function: Callable[..., Any]) -> None:
    optimized = optimize(function)
    for n in LENGTHS:
        agree(optimized, function, lambda n=n: (torch.randn(n, 4),))
    # The first length, all others, and 2 where the code cuts off one row: one row is left.
    assert specializations(optimized) <= 3
    assert optimized.stats()["hits"] >= len(LENGTHS) - 3


@pytest.mark.all_sizes
@pytest.mark.parametrize("function", UNARY, ids=lambda f: f.__name__)
def test_dynamic_true_needs_no_first_length(function: Callable[..., Any]) -> None:
    optimized = optimize(function)
    for n in LENGTHS:
        agree(optimized, function, lambda n=n: (torch.randn(n, 4),))
    assert specializations(optimized) <= 2


@pytest.mark.parametrize("options", [{}, {"dynamic": "auto"}, {"dynamic": False}])
def test_every_length_is_fixed_unless_asked(options: Any) -> None:
    optimized = trident.optimize(sliced, **options)
    for n in LENGTHS[:4]:
        agree(optimized, sliced, lambda n=n: (torch.randn(n, 4),))
    assert specializations(optimized) == 4
    assert "varying" not in trident.explain(optimized)


@pytest.mark.all_sizes
def test_where_not_all_sizes_can_vary_those_that_differ_do() -> None:
    def function(x: torch.Tensor) -> Any:
        return x * 2, f"{x.shape[1]} columns"

    optimized = optimize(function)
    for n in LENGTHS:
        agree(optimized, function, lambda n=n: (torch.randn(n, 4),))
    assert specializations(optimized) == 2
    assert "varying: size 0 of tensor 0" in trident.explain(optimized)


@pytest.mark.all_sizes
def test_no_graph_where_sizes_vary() -> None:
    optimized = trident.optimize(sliced, dynamic=True, graphs=True)
    for n in LENGTHS:
        agree(optimized, sliced, lambda n=n: (torch.randn(n, 4),))
    record = optimizer_of(optimized).records[0]
    assert record.symbols and record.graph_obstacle == "its sizes vary between calls"
    assert record.cuda_graph is None


def test_matrix_products_and_attention() -> None:
    weight, bias = torch.randn(16, 8), torch.randn(16)

    def function(x: torch.Tensor, mask: torch.Tensor) -> Any:
        h = F.gelu(F.linear(x, weight, bias))
        heads = h.view(2, -1, 2, 8).transpose(1, 2)
        q, k, v = heads, heads + 1, heads * 2
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        scores = torch.matmul(q, k.transpose(-1, -2)).masked_fill(mask, -1e9).softmax(-1)
        mixed = scores @ v
        return attended, mixed.transpose(1, 2).reshape(2, x.shape[1], 16), F.layer_norm(h, (16,))

    # An argument of the function's closure is state: only `x` and `mask` vary.
    optimized = optimize(function)
    for n in LENGTHS:
        agree(
            optimized,
            function,
            lambda n=n: (torch.randn(2, n, 8), torch.ones(n, n, dtype=torch.bool).triu(1)),
        )
    assert specializations(optimized) == 2


def test_two_sizes_vary_by_themselves() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> Any:
        return torch.cat([x, y], 1)[:, 2:], x @ x.t(), y.t().contiguous()

    optimized = optimize(function)
    for n, m in [(5, 7), (6, 9), (3, 11), (20, 4), (2, 2), (9, 9)]:
        agree(optimized, function, lambda n=n, m=m: (torch.randn(4, n), torch.randn(4, m)))
    assert specializations(optimized) == 2


def test_a_second_size_begins_to_vary() -> None:
    def function(x: torch.Tensor) -> Any:
        return x.softmax(-1).sum(0)

    optimized = optimize(function)
    for n, m in [(5, 7), (5, 8), (5, 9), (6, 9), (7, 3), (8, 20)]:
        agree(optimized, function, lambda n=n, m=m: (torch.randn(n, m),))
    assert specializations(optimized) == 3


def test_equal_sizes_that_part_later() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> Any:
        return x.sum(0) + y.sum(0), x.shape[0], y.shape[0]

    optimized = optimize(function)
    for n, m in [(5, 5), (7, 7), (9, 9), (9, 4), (3, 8), (6, 6)]:
        agree(optimized, function, lambda n=n, m=m: (torch.randn(n, 3), torch.randn(m, 3)))
    before = specializations(optimized)
    for n, m in [(30, 40), (12, 31)]:
        agree(optimized, function, lambda n=n, m=m: (torch.randn(n, 3), torch.randn(m, 3)))
    assert specializations(optimized) == before


@pytest.mark.all_sizes
def test_sizes_that_must_agree_are_compared() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + y

    optimized = optimize(function)
    agree(optimized, function, lambda: (torch.randn(5, 2), torch.randn(5, 2)))
    agree(optimized, function, lambda: (torch.randn(8, 2), torch.randn(8, 2)))
    with pytest.raises(RuntimeError, match="must match the size"):
        optimized(torch.randn(6, 2), torch.randn(7, 2))
    agree(optimized, function, lambda: (torch.randn(1, 2), torch.randn(7, 2)))
    agree(optimized, function, lambda: (torch.randn(9, 2), torch.randn(1, 2)))


def test_branches_on_a_size_are_guarded() -> None:
    optimized = optimize(branching)
    for n in [5, 6, 9, 10, 8, 3, 2, 50]:
        agree(optimized, branching, lambda n=n: (torch.randn(n, 2),))
    assert specializations(optimized) == 3


def test_zero_and_one_have_their_own() -> None:
    optimized = optimize(reduced)
    for n in [5, 6, 1, 2, 9, 1]:
        agree(optimized, reduced, lambda n=n: (torch.randn(n, 4),))
    assert specializations(optimized) == 3

    def scaled(x: torch.Tensor) -> torch.Tensor:
        return (x * 2).sum(0)

    optimized = optimize(scaled)
    for n in [5, 6, 0, 8, 1, 0]:
        agree(optimized, scaled, lambda n=n: (torch.randn(n, 4),))
    assert specializations(optimized) == 4


@pytest.mark.parametrize(
    "make",
    [
        lambda n: torch.randn(n, 4).t(),
        lambda n: torch.randn(4, n).t(),
        lambda n: torch.randn(n, 8)[:, ::2],
        lambda n: torch.randn(2 * n, 4)[::2],
        lambda n: torch.randn(n + 3, 4)[3:],
        lambda n: torch.randn(4, n + 2)[:, 2:],
        lambda n: torch.randn(2, n, 3).permute(2, 0, 1),
        lambda n: torch.randn(1, 4).expand(n, 4),
        lambda n: torch.randn(4, 50)[:, :n],
    ],
)
def test_strided_arguments(make: Callable[[int], torch.Tensor]) -> None:
    def function(x: torch.Tensor) -> Any:
        return x * 2, x.reshape(-1), x.sum(0), x.transpose(0, 1), x.clone(), x[..., 1:].contiguous()

    optimized = optimize(function)
    for n in [5, 7, 10, 3, 20]:
        agree(optimized, function, lambda n=n: (make(n),))
    # A view's address may be a multiple of 16 or not, which is a fact of its own.
    assert specializations(optimized) <= 4
    assert optimized.stats()["hits"] >= 1


def test_layout_change_is_another_specialization() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x.view(-1) * 2 if x.is_contiguous() else x.sum(0)

    optimized = optimize(function)
    for n in [5, 6, 9]:
        agree(optimized, function, lambda n=n: (torch.randn(n, 4),))
        agree(optimized, function, lambda n=n: (torch.randn(4, n).t(),))
        agree(optimized, function, lambda n=n: (torch.randn(n, 8)[:, :4],))


def test_int_arguments() -> None:
    def function(x: torch.Tensor, n: int, *, start: int = 0) -> Any:
        kind = "int" if isinstance(n, int) else "other"
        return x[start : start + n] * n, torch.arange(n), n, kind

    optimized = optimize(function)
    for n, start in [(4, 2), (5, 2), (6, 3), (9, 5), (3, 4)]:
        torch.manual_seed(0)
        x = torch.randn(20, 2)
        got, expected = optimized(x, n, start=start), function(x, n, start=start)
        assert got[2:] == expected[2:] and type(got[2]) is int
        torch.testing.assert_close(got[:2], expected[:2], rtol=0, atol=0)
    assert specializations(optimized) <= 3


def test_code_that_may_ask_for_the_type_keeps_sizes_fixed() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x * 2 if type(x.shape[0]) is int else x * 3

    optimized = optimize(function)
    for n in [5, 6, 7]:
        agree(optimized, function, lambda n=n: (torch.randn(n),))
    assert specializations(optimized) == 3


def test_text_of_a_size_keeps_it_fixed() -> None:
    def function(x: torch.Tensor) -> Any:
        return x * 2, f"{x.shape[0]} rows"

    optimized = optimize(function)
    for n in [5, 6, 7]:
        agree(optimized, function, lambda n=n: (torch.randn(n),))
    assert specializations(optimized) == 3


def test_a_refusal_that_the_code_catches_keeps_sizes_fixed() -> None:
    def function(x: torch.Tensor) -> Any:
        try:
            return x * len(f"{x.shape[0]}")
        except Exception:
            return x * 100

    optimized = optimize(function)
    for n in [5, 6, 77]:
        agree(optimized, function, lambda n=n: (torch.randn(n),))
    assert specializations(optimized) == 3


def test_shapes_in_the_result_keep_sizes_fixed() -> None:
    def function(x: torch.Tensor) -> Any:
        return x * 2, x.shape, {"twice": 2 * x.shape[0]}

    optimized = optimize(function)
    for n in [5, 6, 7]:
        got, expected = optimized(torch.ones(n)), function(torch.ones(n))
        assert got[1:] == expected[1:]
        assert type(got[1]) is torch.Size


def test_loops_over_a_size_keep_it_fixed() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        total = torch.zeros(2)
        for i in range(x.shape[0]):
            total = total + x[i] * i
        return total

    optimized = optimize(function)
    for n in [3, 4, 5, 6]:
        agree(optimized, function, lambda n=n: (torch.randn(n, 2),))
    assert specializations(optimized) == 4


def test_aliased_arguments_keep_sizes_fixed() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return y * 2

    optimized = optimize(function)
    for n in [5, 6, 7, 8]:
        x = torch.arange(float(n))
        torch.testing.assert_close(optimized(x, x[:]), (torch.arange(float(n)) + 1) * 2)
    assert optimized.stats()["fallbacks"] == 0


def test_assigned_size_becomes_an_attribute() -> None:
    class Counter(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.rows = x.shape[0]
            return x + 1

    module = Counter()
    optimized = optimize(module)
    for n in [5, 6, 9]:
        optimized(torch.ones(n))
        assert module.rows == n and type(module.rows) is int


# --- launches


@triton.jit
def add_one(x, o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(o + i, tl.load(x + i, mask=i < n) + 1, mask=i < n)


@triton.jit
def scale_rows(x, o, stride, n, factor, B: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, B)
    value = tl.load(x + row * stride + i, mask=i < n, other=0.0)
    tl.store(o + row * stride + i, value * factor, mask=i < n)


def launch_add_one(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    add_one[(triton.cdiv(x.numel(), 16),)](x, out, x.numel(), B=16)
    return out * 2


def test_launches_with_symbolic_size_and_grid(device: torch.device) -> None:
    optimized = optimize(launch_add_one)
    for n in [5, 7, *range(2, 201, 9), 16, 32, 160, 1, 200]:
        x = torch.arange(float(n), device=device)
        torch.testing.assert_close(optimized(x), (x + 1) * 2, rtol=0, atol=0)
    # First length, the rest, multiples of 16, and 1.
    assert specializations(optimized) <= 4


def test_launch_with_block_size_chosen_from_a_symbolic_width(device: torch.device) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        block = triton.next_power_of_2(x.shape[1])
        scale_rows[(x.shape[0],)](x, out, x.stride(0), x.shape[1], 0.5, B=block)
        return out

    optimized = optimize(function)
    for n, m in [(3, 5), (4, 5), (5, 7), (6, 8), (7, 6), (2, 9), (3, 16), (9, 30), (2, 31)]:
        x = torch.randn(n, m, device=device)
        torch.testing.assert_close(optimized(x), x * 0.5, rtol=0, atol=0)


def test_launch_at_a_symbolic_offset(device: torch.device) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        half = x.shape[0] // 2
        doubled = x * 2
        out = torch.empty(half, device=x.device)
        add_one[(triton.cdiv(half, 16),)](doubled[half : 2 * half], out, half, B=16)
        return out

    optimized = optimize(function)
    for n in [6, 10, 11, 14, 8, 16, 64, 33, 66, 128, 3]:
        x = torch.arange(float(n), device=device)
        half = n // 2
        torch.testing.assert_close(optimized(x), x[half : 2 * half] * 2 + 1, rtol=0, atol=0)


def test_launch_with_symbolic_int_argument(device: torch.device) -> None:
    def function(x: torch.Tensor, n: int) -> torch.Tensor:
        out = torch.zeros_like(x)
        add_one[lambda meta: (triton.cdiv(n, meta["B"]),)](x, out, n, B=16)
        return out

    optimized = optimize(function)
    x = torch.arange(64.0, device=device)
    for n in [5, 6, 17, 16, 48, 1, 0, 33]:
        expected = torch.where(x < n, x + 1, torch.zeros_like(x))
        torch.testing.assert_close(optimized(x, n), expected, rtol=0, atol=0)


# --- whole models


def llama(liger: bool) -> Any:
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=64,
        max_position_embeddings=256,
    )
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(config).eval()
    if liger:
        # The kernels of the model's own submodules only: other tests use the plain classes.
        liger_kernel = pytest.importorskip("liger_kernel.transformers.monkey_patch")
        for module in model.modules():
            if type(module).__name__ == "LlamaRMSNorm":
                liger_kernel._patch_rms_norm_module(module)
    return model, config


def test_prefill_of_any_length() -> None:
    model, _ = llama(liger=False)
    optimized = optimize(model)
    for n in [5, 7, 9, 64, 1, 2, 33, 16, 48]:
        ids = torch.randint(0, 64, (1, n))
        got = optimized(input_ids=ids, use_cache=False).logits
        expected = model(input_ids=ids, use_cache=False).logits
        torch.testing.assert_close(got, expected, rtol=0, atol=0)
    assert specializations(optimized) <= 4
    assert optimized.stats()["fallbacks"] == 0


def test_prefill_of_any_length_with_liger_kernels(device: torch.device) -> None:
    plain, _ = llama(liger=False)
    plain = plain.to(device)
    model, _ = llama(liger=True)
    model = model.to(device)
    model.load_state_dict(plain.state_dict())
    optimized = optimize(model)
    for n in [5, 7, 9, 1, 2, 33, 16, 48]:
        ids = torch.randint(0, 64, (1, n), device=device)
        got = optimized(input_ids=ids, use_cache=False).logits
        expected = plain(input_ids=ids, use_cache=False).logits
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4)
    assert optimized.stats()["launches"] > 0
    assert specializations(optimized) <= 4


def test_decoding_with_a_growing_cache() -> None:
    transformers = pytest.importorskip("transformers")
    model, config = llama(liger=False)
    optimized = optimize(model)

    def generate(function: Any) -> torch.Tensor:
        cache = transformers.DynamicCache(config=config)
        torch.manual_seed(0)
        logits = []
        for length in [6, *[1] * 12]:
            ids = torch.randint(0, 64, (1, length))
            result = function(input_ids=ids, past_key_values=cache, use_cache=True)
            logits.append(result.logits[:, -1])
        assert cache.get_seq_length() == 18
        return torch.cat(logits)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # transformers renames the argument
        expected = generate(model)
        for _ in range(2):
            torch.testing.assert_close(generate(optimized), expected, rtol=0, atol=0)
    assert specializations(optimized) == 3
    assert optimized.stats()["fallbacks"] == 0


# --- expressions


@st.composite
def sizes(draw: st.DrawFn, depth: int = 3) -> Any:
    if depth == 0 or draw(st.booleans()):
        return draw(
            st.one_of(
                st.integers(1, 50).map(lambda n: expressions.parse(str(n))),
                st.integers(0, 3).map(expressions.size_symbol),
            )
        )
    a, b = draw(sizes(depth - 1)), draw(sizes(depth - 1))
    name = draw(st.sampled_from(["+", "-", "*", "floor_div", "floor_mod", "largest", "smallest"]))
    if name in ("floor_div", "floor_mod"):
        b = draw(st.integers(1, 20))
    a, b = expressions.text(a), expressions.text(b)
    spelled = f"({a}) {name} ({b})" if name in ("+", "-", "*") else f"{name}({a}, {b})"
    return expressions.parse(spelled)


@settings(max_examples=100, deadline=None)
@given(sizes(), st.lists(st.integers(2, 1000), min_size=4, max_size=4))
def test_expressions_are_read_back_and_have_their_value(size: Any, values: list[int]) -> None:
    symbols = dict(zip(map(expressions.size_symbol, range(4)), values, strict=True))
    scope = {
        **{f"s{i}": value for i, value in enumerate(values)},
        "floor_div": lambda a, b: a // b,
        "floor_mod": lambda a, b: a % b,
        "largest": max,
        "smallest": min,
    }

    def value_of(size: Any) -> int:
        return size if isinstance(size, int) else int(size.xreplace(symbols))

    spelled = expressions.text(size)
    assert eval(spelled, scope) == value_of(size)
    # Reading simplifies (`Max(1, s0)` is `s0`), so the value is what has to be the same.
    read_back = expressions.parse(spelled)
    assert value_of(read_back) == value_of(size)
    assert expressions.parse(expressions.text(read_back)) == read_back


def test_divisors_that_may_be_zero_are_found_and_guarded() -> None:
    spelled = expressions.parse("floor_div(s0, s1) + floor_mod(s0 * 3, s1 - 2) * floor_div(s1, 5)")
    assert expressions.divisors(spelled) == {expressions.parse("s1 - 2")}

    def function(x: torch.Tensor) -> torch.Tensor:
        return x.view(x.shape[0] // 4, 4, -1) if x.shape[0] % 4 == 0 else x

    optimized = optimize(function)
    for n in [4, 8, 12, 3, 5, 2, 40]:
        agree(optimized, function, lambda n=n: (torch.randn(n, 3),))
    assert specializations(optimized) == 3


def test_what_integers_cannot_express_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="not supported"):
        expressions.text(expressions.size_symbol(0) ** -1)


# --- properties

_PROPERTIES = {
    "mixed": lambda x, y: (
        torch.cat([x, y.flip(1)], 0).softmax(-1)[1:, : x.shape[1] - 1].sum(1),
        (x @ y.t()).reshape(-1),
        x.shape[0] + 0 if x.shape[1] % 3 == 0 else y.shape[0],
    ),
}
_mixed = optimize(_PROPERTIES["mixed"])


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.integers(1, 40), st.integers(1, 40), st.integers(2, 40))
def test_any_shapes_agree_with_eager(n: int, m: int, k: int) -> None:
    agree(_mixed, _PROPERTIES["mixed"], lambda: (torch.randn(n, k), torch.randn(m, k)))
