"""Recording launches: binding, tensors in order, options, grids, and what is refused."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from trident.errors import UnsupportedError
from trident.kernels import LaunchRequest, TensorArg, is_interpreted, record_launch


@triton.jit
def copy(x, y, n, scale=1.0, B: tl.constexpr = 32):
    i = tl.arange(0, B)
    tl.store(y + i, tl.load(x + i, mask=i < n) * scale, mask=i < n)


@triton.jit
def own_warps(x, num_warps: tl.constexpr):
    tl.store(x, num_warps)


INTERPRETED = is_interpreted(copy)


def record(
    kernel: Any, *args: Any, grid: Any = (1,), **kwargs: Any
) -> tuple[LaunchRequest, list[torch.Tensor]]:
    return record_launch(kernel, args, kwargs, grid, lambda tensor: tensor.data_ptr() % 16)


def test_arguments_come_in_parameter_order_with_defaults() -> None:
    x, y = torch.zeros(4), torch.zeros(4, dtype=torch.float16)
    request, tensors = record(copy, B=64, n=4, y=y, x=x)
    assert list(request.arguments) == ["x", "y", "n", "scale", "B"]
    assert request.arguments["x"] == TensorArg(0, torch.float32, 0)
    assert request.arguments["y"] == TensorArg(1, torch.float16, 0)
    assert request.arguments["n"] == 4 and request.arguments["scale"] == 1.0
    assert request.constexprs == {"B": 64}
    assert tensors[0] is x and tensors[1] is y
    assert request.num_tensors == 2 and request.label == "copy"
    assert request.where.startswith(__file__)


def test_same_tensor_twice_is_two_tensor_arguments() -> None:
    x = torch.zeros(4)
    request, tensors = record(copy, x, x, 4)
    assert [request.arguments[name].index for name in ("x", "y")] == [0, 1]
    assert tensors[0] is tensors[1] is x


def test_alignment_is_the_views() -> None:
    x = torch.zeros(64)
    request, _ = record(copy, x, x[1:], 4)
    assert request.arguments["x"].address_mod_16 == x.data_ptr() % 16
    assert request.arguments["y"].address_mod_16 == (x.data_ptr() + 4) % 16


class Pair(NamedTuple):
    tensor: Any
    count: Any


def test_nested_tuples_keep_their_classes() -> None:
    x, y = torch.zeros(4), torch.zeros(4)
    request, tensors = record(copy, Pair(x, (y, 3)), y, None)
    pair = request.arguments["x"]
    assert type(pair) is Pair
    assert pair == Pair(TensorArg(0, torch.float32, 0), (TensorArg(1, torch.float32, 0), 3))
    assert len(tensors) == 3 and request.arguments["n"] is None


def test_reinterpreted_tensor_has_the_wrappers_dtype() -> None:
    x = torch.zeros(8, dtype=torch.uint8)
    request, tensors = record(copy, triton.reinterpret(x, tl.float8e5), x, 4)
    assert request.arguments["x"].dtype == tl.float8e5
    assert tensors[0] is x


def test_options_are_kept_and_do_not_become_arguments() -> None:
    x = torch.zeros(4)
    request, _ = record(copy, x, x, 4, num_warps=8, num_stages=2, maxnreg=64)
    assert request.options == {"num_warps": 8, "num_stages": 2, "maxnreg": 64}


def test_parameter_named_like_an_option_counts_as_both_by_keyword() -> None:
    x = torch.zeros(4)
    by_keyword, _ = record(own_warps, x, num_warps=2)
    assert by_keyword.arguments["num_warps"] == 2 and by_keyword.options == {"num_warps": 2}
    by_position, _ = record(own_warps, x, 2)
    assert by_position.arguments["num_warps"] == 2 and by_position.options == {}


def test_missing_argument_is_tritons_type_error() -> None:
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'n'"):
        record(copy, torch.zeros(4), torch.zeros(4))


def test_unknown_keyword_is_tritons_key_error() -> None:
    x = torch.zeros(4)
    if INTERPRETED:
        assert record(copy, x, x, 4, wraps=3)[0].options == {}
        return
    with pytest.raises(KeyError, match="wraps was specified but unrecognised"):
        record(copy, x, x, 4, wraps=3)
    with pytest.raises(AssertionError, match="stream option is deprecated"):
        record(copy, x, x, 4, stream=0)


@pytest.mark.parametrize("value", ["text", torch.float32, 1j, [1, 2]])
def test_value_of_a_foreign_type_is_a_type_error(value: Any) -> None:
    x = torch.zeros(4)
    with pytest.raises(TypeError, match="failed to specialize"):
        record(copy, x, x, value)


def test_integer_beyond_64_bits_overflows() -> None:
    x = torch.zeros(4)
    with pytest.raises(OverflowError):
        record(copy, x, x, 2**64)


@pytest.mark.parametrize(
    ("grid", "expected"),
    [
        ((3,), (3, 1, 1)),
        ([3, 2], (3, 2, 1)),
        ((3, 2, 4), (3, 2, 4)),
        ((0, 5), (0, 5, 1)),
        (lambda meta: (triton.cdiv(meta["n"], meta["B"]), meta["x"].numel()), (2, 64, 1)),
        (lambda meta: [meta["scale"] == 1.0], (1, 1, 1)),
    ],
)
def test_grids(grid: Any, expected: tuple[int, int, int]) -> None:
    x = torch.zeros(64)
    assert record(copy, x, x, 40, grid=grid)[0].grid == expected


@pytest.mark.parametrize(
    ("grid", "error"),
    [(5, TypeError), ((1.5,), TypeError), ((), IndexError), (("1",), TypeError)],
)
def test_malformed_grids_raise(grid: Any, error: type[Exception]) -> None:
    x = torch.zeros(64)
    with pytest.raises(error):
        record(copy, x, x, 4, grid=grid)


@pytest.mark.parametrize("grid", [(-1,), (2**31,), (torch.tensor(3),)])
def test_grids_left_to_triton(grid: Any) -> None:
    x = torch.zeros(64)
    with pytest.raises(UnsupportedError, match="grid extent"):
        record(copy, x, x, 4, grid=grid)


def test_what_cannot_be_expressed_says_why() -> None:
    x = torch.zeros(16, 16)
    with pytest.raises(UnsupportedError, match="argument B is a TensorDescriptor") as caught:
        record(copy, x, x, 4, B=TensorDescriptor(x, [16, 16], [16, 1], [16, 16]))
    assert caught.value.where is not None and caught.value.where.startswith(__file__)
    with pytest.raises(UnsupportedError, match="argument B of type Tensor holds memory"):
        record(copy, x, x, 4, B=x)
    with pytest.raises(UnsupportedError, match=r"argument B\[0\]"):
        record(copy, x, x, 4, B=[x])
    with pytest.raises(UnsupportedError, match="argument y is on meta"):
        record(copy, x, torch.zeros(4, device="meta"), 4)
    with pytest.raises(UnsupportedError, match="layout"):
        record(copy, x.to_sparse(), x, 4)


def test_fake_tensors_are_not_asked_for_their_address() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        fake = torch.zeros(4)
    request, tensors = record_launch(copy, (fake, fake, 4), {}, (1,), lambda _: 20)
    assert request.arguments["x"] == TensorArg(0, torch.float32, 4)
    assert tensors[0] is fake


def test_zero_arguments() -> None:
    @triton.jit
    def nothing():
        pass

    request, tensors = record(nothing, grid=(7,))
    assert request.arguments == {} and tensors == [] and request.grid == (7, 1, 1)
