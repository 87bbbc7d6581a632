"""Functions whose globals are a dictionary of their own, and code that lies in no file."""

from __future__ import annotations

import types
from typing import Any

import pytest
import torch
from torch import nn

import trident

pytestmark = pytest.mark.filterwarnings("ignore:trident")
X = torch.ones(2)

NAMESPACES: tuple[dict[str, Any], ...] = (
    {},
    {"__name__": "nowhere"},
    {"__name__": __name__},
)


@pytest.mark.parametrize("start", NAMESPACES)
def test_functions_over_a_dictionary(start: dict[str, Any]) -> None:
    names: dict[str, Any] = {**start, "SCALE": 1.0, "WEIGHT": torch.ones(2)}
    exec(
        "def shift(x): return x + 1\n"
        "def scaled(x): return shift(x) * SCALE * WEIGHT\n"
        "def count(x):\n  global SCALE\n  SCALE += 1\n  return x * SCALE\n",
        names,
    )
    scaled, count = names["scaled"], names["count"]
    for fast in (trident.optimize(scaled), trident.optimize(lambda x: scaled(x))):
        for change in (
            lambda: None,
            lambda: names.update(SCALE=2.0),
            lambda: names.update(SCALE=3.0, WEIGHT=torch.full((2,), 4.0)),
            lambda: exec("def shift(x): return x + 100", names),
        ):
            change()
            assert torch.equal(fast(X), scaled(X)) and torch.equal(fast(X), scaled(X))
    names["SCALE"] = 0.0
    counted = trident.optimize(count)
    assert [float(counted(X)[0]) for _ in range(3)] == [1.0, 2.0, 3.0] and names["SCALE"] == 3.0


def test_code_without_a_file_assigns_data() -> None:
    names: dict[str, Any] = {}
    exec("def forward(self, x):\n  self.weight.data = x * 3\n  return x * 2\n", globals(), names)
    module: Any = type("Made", (nn.Module,), names)()
    module.weight = nn.Parameter(torch.ones(2))
    fast = trident.optimize(module)
    with torch.no_grad():
        for value in (1.0, 2.0, 3.0):
            assert torch.equal(fast(X * value), X * value * 2)
            assert torch.equal(module.weight, X * value * 3)


def test_functions_over_globals_of_another_module() -> None:
    module = types.ModuleType("settings")
    vars(module).update(SCALE=2.0, __file__=__file__)
    function = types.FunctionType(compile("x * SCALE", __file__, "eval"), vars(module) | {"x": X})
    fast = trident.optimize(lambda: function())
    for scale in (2.0, 3.0, 4.0):
        function.__globals__["SCALE"] = scale
        assert torch.equal(fast(), X * scale)
