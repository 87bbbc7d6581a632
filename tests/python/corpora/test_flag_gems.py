"""FlagGems' operator wrappers: 25 operators on five shapes, in bfloat16."""

from __future__ import annotations

import functools
import json
import pathlib
import re
import subprocess
import sys
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from corpus import Case, Draw, Tally, need
from h200 import import_flag_gems
from triton_on_cpu import Launches, check_compiles

BENCHMARKS = pathlib.Path(__file__).resolve().parents[3] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import flaggems  # noqa: E402
import flaggems_operators as operators  # noqa: E402

CORPUS = "FlagGems"
SIZES = operators.FULL if torch.cuda.is_available() else operators.SMALL


@pytest.fixture(scope="module")
def flag_gems(
    h200: pytest.MonkeyPatch, launches: Launches | None, tmp_path_factory: pytest.TempPathFactory
) -> Any:
    """The package, with caches of its own: nothing is tuned or generated yet."""
    need("sqlalchemy")
    h200.setenv("FLAGGEMS_CACHE_DIR", str(tmp_path_factory.mktemp("flag_gems")))
    try:
        return import_flag_gems(h200, without_gpu=launches is not None)
    except ModuleNotFoundError:
        need("flag_gems")
        raise


def arguments(name: str, index: int) -> Callable[[Draw], tuple[Any, ...]]:
    """Makes what an operator is called with, on the sizes of this index."""

    def make(draw: Draw) -> tuple[Any, ...]:
        def normal(*shape: int) -> torch.Tensor:
            return draw.normal(*shape, dtype=torch.bfloat16)

        return operators.arguments(name, SIZES, index, normal, draw.below)

    return make


@pytest.mark.parametrize("name", operators.OPERATORS)
def test_operator_is_eager(
    name: str, flag_gems: Any, tally: Tally, device: torch.device, launches: Launches | None
) -> None:
    tally.check(Case(name, operators.wrapper(flag_gems, name), arguments(name, 0)), device, {})


def _all(functions: list[Callable[..., Any]], *arguments: tuple[Any, ...]) -> list[Any]:
    return [function(*given) for function, given in zip(functions, arguments, strict=True)]


@pytest.mark.parametrize("index", range(1, 5))
def test_operators_on_other_shapes(
    index: int, flag_gems: Any, tally: Tally, device: torch.device, launches: Launches | None
) -> None:
    """All operators in one call, so that each further shape costs one specialization."""
    functions = [operators.wrapper(flag_gems, name) for name in operators.OPERATORS]
    makers = [arguments(name, index) for name in operators.OPERATORS]
    case = Case(
        f"all operators, shape {index}",
        functools.partial(_all, functions),
        lambda draw: tuple(make(draw) for make in makers),
    )
    tally.check(case, device, {})


def flipped(package: Any, x: torch.Tensor) -> torch.Tensor:
    return package.ops.flip(x, [0])


def test_buffer_with_negative_strides(
    flag_gems: Any, tally: Tally, device: torch.device, launches: Launches | None
) -> None:
    """It starts at the last row of its tensor."""
    function = functools.partial(flipped, flag_gems)
    tally.check(Case("flip", function, lambda d: (d.normal(5, 12)[1:],)), device, {})


def gated(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.exp(x) * y + torch.softmax(x, -1)


def test_wrappers_registered_over_aten(
    flag_gems: Any, tally: Tally, device: torch.device, launches: Launches | None
) -> None:
    """As `flag_gems.enable()` does: the operators of a call are FlagGems' launches."""
    library = torch.library.Library("aten", "IMPL")
    replaced = {"exp": "exp", "mul.Tensor": "mul", "_softmax": "softmax"}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PyTorch's own, that kernels are overridden
            for operator, name in replaced.items():
                library.impl(operator, getattr(flag_gems.ops, name), device.type.upper())
        arguments = Case("over_aten", gated, lambda d: (d.normal(4, 48), d.normal(4, 48)))
        fast = tally.check(arguments, device, {})
        assert fast.stats()["launches"] == 3 * (fast.stats()["misses"] + fast.stats()["hits"])
    finally:
        library._destroy()


@torch.no_grad()
def test_kernels_compute_what_pytorch_does(
    flag_gems: Any, device: torch.device, launches: Launches | None
) -> None:
    """The wrappers are eager's measure above, so they are measured here."""
    references = {
        **{name: getattr(torch, name) for name in ("abs", "exp", "sigmoid", "add", "mul", "lt")},
        "gelu": torch.nn.functional.gelu,
        "softmax": torch.softmax,
        "sum_dim": torch.sum,
        "cumsum": torch.cumsum,
        "mm": torch.mm,
    }
    for name, reference in references.items():
        given = arguments(name, 1)(Draw(device, 3))
        got = operators.wrapper(flag_gems, name)(*given)
        precise = [each.double() if isinstance(each, torch.Tensor) else each for each in given]
        torch.testing.assert_close(
            got.double(), reference(*precise).double(), rtol=2e-2, atol=2e-2, msg=name
        )


def test_benchmark_runs(flag_gems: Any, tmp_path: pathlib.Path) -> None:
    output = tmp_path / "result.json"
    command = [sys.executable, str(BENCHMARKS / "flaggems.py"), "--smoke", "--modes"]
    command += ["eager,trident", "--operators", "lt,mm", "--output", str(output)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(re.findall(r"^(?:lt \d+x\d+|mm \d+ rows) ( +\d+\.\d){4}", done.stdout, re.M)) == 10
    results = json.loads(output.read_text())["results"]
    assert {(each["operator"], each["mode"]) for each in results} == {
        (operator, mode) for operator in ("lt", "mm") for mode in ("eager", "trident")
    }
    stats = [each["stats"] for each in results if "stats" in each]
    assert len(stats) == 2
    for each in stats:
        assert 1 <= each["misses"] <= 5 and each["hits"] > 10, each
        assert each["fallbacks"] == each["errors"] == 0, each


def test_summary_counts_operators_by_the_mean_of_their_sizes() -> None:
    def result(mode: str, operator: str, size: int, host: float) -> dict[str, Any]:
        return dict(mode=mode, operator=operator, size=size, host_us=host, device_us=None)

    results = [
        *(result("eager", "abs", 0, 40.0), result("eager", "abs", 1, 10.0)),
        *(result("trident", "abs", 0, 5.0), result("trident", "abs", 1, 20.0)),
        *(result("eager", "mm", 0, 8.0), result("trident", "mm", 0, 16.0)),
        dict(mode="trident", operator="cat", error="none"),
    ]
    (line,) = flaggems.summary(results, "trident")
    assert "host time: faster on 1 of 2 operators, 1.00x in the geometric mean" in line


def test_launched_variants_compile(launches: Launches | None) -> None:
    check_compiles(launches)
