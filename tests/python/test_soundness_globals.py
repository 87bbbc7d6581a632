"""Changes outside of the optimized object: globals, closures, defaults, environment variables."""

# ruff: noqa: E501 (programs of the user's, one per line)

from __future__ import annotations

import importlib.util
import itertools
import os
import pathlib
import sys
import types
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from soundness_helpers import Pair, check

import trident
import trident.miss

_names = (f"user_module_{number}" for number in itertools.count())


@pytest.fixture
def load(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., types.ModuleType]:
    """Makes a module of the user's from source text."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def load_module(source: str, name: str | None = None) -> types.ModuleType:
        name = name or next(_names)
        path = tmp_path / f"{name}.py"
        path.write_text("import torch\nfrom torch import nn\n" + source)
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, name, module)
        spec.loader.exec_module(module)
        return module

    return load_module


class Twins:
    """The same source as two modules; a change applies to both."""

    def __init__(self, load: Callable[..., types.ModuleType], source: str, target: str) -> None:
        self.modules: list[types.ModuleType] = []

        def make() -> Any:
            self.modules.append(load(source))
            return eval(target, vars(self.modules[-1]))

        self.pair = Pair(make)

    def call(self) -> str:
        with torch.no_grad():
            return self.pair.call()

    def change(self, change: Callable[[Any], object]) -> None:
        for module in self.modules:
            change(module)

    def check(self, change: Callable[[Any], object], after: str = "mh") -> None:
        self.change(change)
        assert self.call() == after


MODULE = """
class Box:
    def __init__(self, value): self.value = value
SCALE = 2.0
TABLE = {"a": [1.0, 2.0]}
BOX = Box(3.0)
class Settings:
    shift = 1.0
    steps = [1.0]
    class Inner:
        factor = 2.0
def helper(x, extra=[0.0], *, more={"k": 0.0}):
    return x + extra[0] + more["k"] + helper.bonus
helper.bonus = 0.0
def outer(x):
    return helper(x) * SCALE
def run(x):
    y = outer(x) + TABLE["a"][0] * BOX.value + Settings.shift + Settings.steps[0]
    return y * Settings.Inner.factor
class Model(nn.Module):
    def forward(self, x):
        return run(x)
"""

GLOBALS: dict[str, Callable[[Any], object]] = {
    "number": lambda m: setattr(m, "SCALE", 3.0),
    "number's type": lambda m: setattr(m, "SCALE", 2),
    "nested list": lambda m: m.TABLE["a"].__setitem__(0, 5.0),
    "object": lambda m: setattr(m.BOX, "value", 5.0),
    "replaced object": lambda m: setattr(m, "BOX", m.Box(6.0)),
    "class attribute": lambda m: setattr(m.Settings, "shift", 5.0),
    "list of a class": lambda m: m.Settings.steps.__setitem__(0, 5.0),
    "nested class": lambda m: setattr(m.Settings.Inner, "factor", 5.0),
    "replaced function": lambda m: setattr(m, "outer", lambda x: x),
    "mutated default": lambda m: m.helper.__defaults__[0].__setitem__(0, 5.0),
    "replaced default": lambda m: setattr(m.helper, "__defaults__", ([5.0],)),
    "keyword default": lambda m: m.helper.__kwdefaults__["more"].update(k=5.0),
    "attribute of a function": lambda m: setattr(m.helper, "bonus", 5.0),
    "code of a function": lambda m: setattr(m.helper, "__code__", m.outer.__code__),
    "builtin shadowed": lambda m: setattr(m, "len", lambda x: 7),
}


@pytest.mark.parametrize("target", ["run", "Model()"])
@pytest.mark.parametrize(
    "name", [name for name in GLOBALS if name not in ("code of a function", "builtin shadowed")]
)
def test_globals(load: Any, name: str, target: str) -> None:
    twins = Twins(load, MODULE, target)
    assert twins.call() == "mh"
    twins.change(lambda m: setattr(m, "UNRELATED", 1))
    assert twins.call() == "hh"
    twins.check(GLOBALS[name])


def test_code_of_a_function_is_exchanged(load: Any) -> None:
    twins = Twins(
        load, "def f(x): return x * 2\ndef g(x): return x * 3\ndef run(x): return f(x)\n", "run"
    )
    assert twins.call() == "mh"
    twins.check(lambda m: setattr(m.f, "__code__", m.g.__code__))


def test_builtin_is_shadowed_later(load: Any) -> None:
    twins = Twins(load, "def run(x): return x * len([1, 2])\n", "run")
    assert twins.call() == "mh"
    twins.check(lambda m: setattr(m, "len", lambda value: 7))
    twins.check(lambda m: delattr(m, "len"), after="hh")


HELPER = """
scale = 2.0
table = [1.0]
def apply(x): return x * scale
"""


@pytest.mark.parametrize(
    "body",
    [
        "import {name}\ndef run(x): return x * {name}.scale + {name}.table[0]",
        "import {name} as h\ndef run(x): return h.apply(x) + h.table[0]",
        "def run(x):\n    import {name}\n    return x * {name}.scale + {name}.table[0]",
        "def run(x):\n    from {name} import scale, table\n    return x * scale + table[0]",
        "import {name}\ndef inner(m, x): return x * m.scale + m.table[0]\ndef run(x): return inner({name}, x)",
        "import {name}\ndef run(x): return x * getattr({name}, 'scale') + getattr({name}, 'table')[0]",
        "import {name}\nclass C(nn.Module):\n    def __init__(s): super().__init__(); s.m = {name}\n"
        "    def forward(s, x): return x * s.m.scale + s.m.table[0]\nrun = C()",
        "import {name}\nH = {{'m': {name}}}\ndef run(x): return x * H['m'].scale + H['m'].table[0]",
    ],
)  # fmt: skip
def test_attributes_of_a_module(load: Any, body: str) -> None:
    helpers = []

    def make() -> Any:
        name = next(_names)
        helpers.append(load(HELPER, name))
        return load(body.format(name=name)).run

    with torch.no_grad():
        pair = Pair(make)
        assert pair.call() == "mh"
        for helper in helpers:
            helper.scale = 3.0
        assert pair.call() == "mh"
        for helper in helpers:
            helper.table[0] = 4.0
        assert pair.call() == "mh"


def test_first_import_inside_of_the_call(load: Any, tmp_path: pathlib.Path) -> None:
    name = next(_names)
    (tmp_path / f"{name}.py").write_text("import torch\nT = torch.ones(4)\nscale = 2.0\n")
    run = load(f"def run(x):\n    import {name}\n    return x * {name}.scale + {name}.T\n").run
    with torch.no_grad():
        fast = Pair(lambda: run)
        fast.call()
    assert type(sys.modules[name].T) is torch.Tensor  # not what the trace computed


def test_closures() -> None:
    def make() -> Any:
        scale, table = 2.0, [3.0]

        def change(new_scale: float, new_entry: float) -> None:
            nonlocal scale
            scale = new_scale
            table[0] = new_entry

        def run(x: torch.Tensor) -> torch.Tensor:
            return x * scale + table[0]

        run.change = change  # type: ignore[attr-defined]
        return run

    pair = check(make, lambda f: f.change(3.0, 3.0))
    with torch.no_grad():
        pair.change(lambda f: f.change(3.0, 4.0))
        assert pair.call() == "mh"
        pair.change(lambda f: f.change(2.0, 3.0))
        assert pair.call() == "hh"


def test_closure_over_a_module() -> None:
    def make() -> Any:
        torch.manual_seed(0)
        layer = torch.nn.Linear(4, 4)

        def run(x: torch.Tensor) -> torch.Tensor:
            return layer(x) * 2

        run.layer = layer  # type: ignore[attr-defined]
        return run

    rows = lambda: torch.arange(8.0).reshape(2, 4)  # noqa: E731
    pair = check(make, lambda f: f.layer.weight.add_(1), arguments=rows, after="hh")
    with torch.no_grad():
        pair.change(lambda f: setattr(f.layer, "bias", None))
        assert pair.call() == "mh"


def test_global_module_and_tensor(load: Any) -> None:
    source = "torch.manual_seed(0)\nlayer = nn.Linear(4, 4)\nW = torch.ones(4)\nS = 2.0\ndef run(x): return layer(x) * W * S\n"
    twins = Twins(load, source, "run")
    assert twins.call() == "mh"
    with torch.no_grad():
        twins.check(lambda m: m.layer.weight.add_(1), after="hh")
        twins.check(lambda m: setattr(m, "W", torch.full((4,), 3.0)), after="hh")
        twins.check(lambda m: setattr(m, "W", torch.tensor(3.0)))
        twins.check(lambda m: setattr(m, "S", 3.0))


def test_decorated_method_with_a_closure(load: Any) -> None:
    source = """
import functools
FACTORS = []
def scaled(box):
    FACTORS.append(box)
    def decorate(function):
        @functools.wraps(function)
        def inner(self, x): return function(self, x) * box["k"]
        return inner
    return decorate
class M(nn.Module):
    @scaled({"k": 2.0})
    def forward(self, x): return x + 1
"""
    twins = Twins(load, source, "M()")
    assert twins.call() == "mh"
    twins.check(lambda m: m.FACTORS[0].update(k=3.0))


def test_environment_variables(load: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for expression in ("os.environ['SOUND']", "os.getenv('SOUND')", "os.environ.get('SOUND', '1')"):
        monkeypatch.setenv("SOUND", "2")
        twins = Twins(load, f"import os\ndef run(x): return x * float({expression})\n", "run")
        assert twins.call() == "mh"
        monkeypatch.setenv("SOUND", "3")
        assert twins.call() == "mh"
    assert os.environ["SOUND"] == "3"


def test_numpy_array_falls_back(load: Any) -> None:
    twins = Twins(
        load, "import numpy as np\nA = np.array([2.0])\ndef run(x): return x * float(A[0])\n", "run"
    )
    assert twins.call() == "ff"
    twins.check(lambda m: m.A.__setitem__(0, 3.0), after="ff")


# What the call does to objects that are not its own: it runs eagerly, and only once per call.
EFFECTS = {
    "append to a global list": "LOG = []\ndef run(x):\n    LOG.append(1)\n    return x * len(LOG)",
    "entry of a global dict": "LOG = {'n': 0}\ndef run(x):\n    LOG['n'] += 1\n    return x * LOG['n']",
    "tensor in a global dict": "LOG = {}\ndef run(x):\n    if 'm' not in LOG: LOG['m'] = torch.ones(4)\n    return x * LOG['m']",
    "global variable": "N = 0\ndef run(x):\n    global N\n    N += 1\n    return x * N",
    "attribute of a global object": "class B: n = 0\nLOG = B()\ndef run(x):\n    LOG.n += 1\n    return x * LOG.n",
    "class attribute": "class B:\n    n = 0\ndef run(x):\n    B.n += 1\n    return x * B.n",
    "class attribute of self": "class M(nn.Module):\n    n = 0\n    def forward(self, x):\n        type(self).n += 1\n        return x * self.n\nrun = M()",
    "list of the class": "class M(nn.Module):\n    log = []\n    def forward(self, x):\n        self.log.append(1)\n        return x * len(self.log)\nrun = M()",
    "mutable default": "def run(x, log=[]):\n    log.append(1)\n    return x * len(log)",
    "default of a method": "class M(nn.Module):\n    def forward(self, x, log=[]):\n        log.append(1)\n        return x * len(log)\nrun = M()",
    "attribute of a function": "def run(x):\n    run.n += 1\n    return x * run.n\nrun.n = 0",
    "attribute of a helper": "def helper(x):\n    helper.n += 1\n    return x * helper.n\nhelper.n = 0\ndef run(x): return helper(x)",
    "closure variable": "def make():\n    n = 0\n    def run(x):\n        nonlocal n\n        n += 1\n        return x * n\n    return run\nrun = make()",
    "closure variable of a helper": "def make():\n    n = 0\n    def f(x):\n        nonlocal n\n        n += 1\n        return x * n\n    return f\nf = make()\nclass M(nn.Module):\n    def forward(self, x): return f(x)\nrun = M()",
    "lru_cache of a tensor": "import functools\n@functools.lru_cache\ndef mask(n): return torch.ones(n)\ndef run(x): return x * mask(4)",
    "lru_cache of a method": "import functools\nclass M(nn.Module):\n    @functools.lru_cache\n    def mask(self, n): return torch.ones(n)\n    def forward(self, x): return x * self.mask(4)\nrun = M()",
}  # fmt: skip


@pytest.mark.parametrize("name", EFFECTS)
def test_effect_outside_of_the_module(load: Any, name: str) -> None:
    twins = Twins(load, EFFECTS[name], "run")
    outcomes = twins.call() + twins.call()
    if name == "mutable default":  # part of the optimized function: its effect is replayed
        assert outcomes == "mmmm"
    elif name == "tensor in a global dict":
        assert outcomes == "fmhh"
    elif name == "lru_cache of a tensor":  # its first call fills the cache
        assert outcomes == "mhhh"
    else:
        assert outcomes == "ffff"


def test_attribute_that_is_also_a_global(load: Any) -> None:
    source = """
class Box: pass
BOX = Box()
BOX.n = 1.0
class M(nn.Module):
    def __init__(self): super().__init__(); self.box = BOX
    def forward(self, x):
        self.box.n += 1
        return x * BOX.n
class Same(nn.Module):
    def __init__(self): super().__init__(); self.box = BOX
    def forward(self, x): return x * (2.0 if self.box is BOX else 3.0)
"""
    twins = Twins(load, source, "M()")
    assert twins.call() == "ff"
    assert Twins(load, source, "Same()").call() == "ff"


def test_module_imported_by_the_first_call_is_no_obstacle(
    load: Callable[..., types.ModuleType], tmp_path: pathlib.Path
) -> None:
    (tmp_path / "imported_late.py").write_text("SCALE = 3.0\n")
    source = "def double(x):\n    import imported_late\n    return x * imported_late.SCALE\n"
    module = load(source)
    try:
        fast = trident.optimize(module.double, on_unsupported="raise")
        with torch.no_grad():
            for _ in range(3):
                assert torch.equal(fast(torch.ones(3)), torch.full((3,), 3.0))
        stats = fast.stats()
        assert (stats["fallbacks"], stats["misses"], stats["hits"]) == (0, 1, 2)
    finally:
        sys.modules.pop("imported_late", None)


def test_call_that_imports_each_time_is_not_captured_for_ever(
    load: Callable[..., types.ModuleType], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "imported_anew.py").write_text("SCALE = 3.0\n")
    module = load(
        "import sys\ndef triple(x):\n    sys.modules.pop('imported_anew', None)\n"
        "    import imported_anew\n    return x * imported_anew.SCALE\n"
    )
    captures = []
    original = trident.miss.compile_call
    monkeypatch.setattr(
        trident.miss, "compile_call", lambda *given: (captures.append(1), original(*given))[1]
    )
    fast = trident.optimize(module.triple)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(30):
            assert torch.equal(fast(torch.ones(3)), torch.full((3,), 3.0))
    sys.modules.pop("imported_anew", None)
    assert fast.stats()["fallbacks"] == 30 and 1 < len(captures) < 30
