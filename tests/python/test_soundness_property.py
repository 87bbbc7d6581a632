"""Property: whatever a module and its arguments hold, and however they change, results agree."""

from __future__ import annotations

import collections
import copy
import dataclasses
import gc
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from soundness_helpers import describe
from torch import nn

import trident


class Box:
    def __init__(self, **attributes: Any) -> None:
        vars(self).update(attributes)


class Slotted:
    __slots__ = ("a", "b")


@dataclasses.dataclass
class Record:
    a: Any = None
    b: Any = None


Named = collections.namedtuple("Named", ["a", "b"])


def _slotted(values: dict[str, Any]) -> Slotted:
    made = Slotted()
    for name, value in values.items():
        setattr(made, name, value)
    return made


# Numbers are few, so that states repeat.
numbers = st.sampled_from([0, 1, 2, -1, True, False, 0.0, -0.0, 1.0, 2.5, float("inf"), 2**70])
leaves = st.one_of(
    numbers, st.sampled_from([None, "", "a", "b", b"a", torch.float16, torch.device("cpu")])
)
names = st.sampled_from(["a", "b"])
shapes = st.sampled_from([(), (2,), (3,), (2, 1), (0,)])


@st.composite
def tensors(draw: Any) -> torch.Tensor:
    """Small tensors of several geometries; the bytes depend on the geometry alone."""
    shape = draw(shapes)
    dtype = draw(st.sampled_from([torch.float32, torch.float64, torch.int64]))
    count = max(1, int(torch.tensor(shape).prod())) if shape else 1
    base = torch.arange(count + 8).to(dtype)
    offset = draw(st.sampled_from([0, 1, 4]))
    made = base[offset : offset + count].reshape(shape) if 0 not in shape else base[:0]
    return made.t() if made.dim() == 2 and draw(st.booleans()) else made


def containers(children: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """One more level of structure."""
    table = st.dictionaries(names, children, max_size=2)
    return st.one_of(
        st.lists(children, max_size=3),
        st.lists(children, max_size=2).map(tuple),
        st.lists(children, max_size=2).map(collections.deque),
        table,
        table.map(collections.OrderedDict),
        table.map(lambda values: Box(**values)),
        table.map(lambda values: Record(**values)),
        table.map(_slotted),
        st.tuples(children, children).map(lambda pair: Named(*pair)),
        st.sets(st.sampled_from([0, 1, 8, 16, "a"]), max_size=3),
        children.map(lambda child: [child, child]),
    )


values = st.recursive(st.one_of(leaves, tensors()), containers, max_leaves=6)


def read(value: Any, seen: list[Any]) -> Any:
    """Everything that code can see of a value, as plain Python data."""
    if isinstance(value, torch.Tensor):
        return str(value.dtype), tuple(value.shape), value.stride(), any(value is s for s in seen)
    if isinstance(value, (list, tuple, collections.deque, dict, Box, Slotted, Record)):
        for position, known in enumerate(seen):
            if known is value:
                return "again", position
        seen.append(value)
    kind = type(value).__name__
    if isinstance(value, dict):
        return kind, [(name, read(item, seen)) for name, item in value.items()]
    if isinstance(value, (list, tuple, collections.deque)):
        return kind, [read(item, seen) for item in value]
    if isinstance(value, set):
        return kind, [str(item) for item in value]
    if isinstance(value, Slotted):
        return kind, [
            (n, read(getattr(value, n), seen)) if hasattr(value, n) else None for n in ("a", "b")
        ]
    if isinstance(value, (Box, Record)):
        return kind, [(name, read(item, seen)) for name, item in vars(value).items()]
    return kind, repr(value)


class Reader(nn.Module):
    """Returns what it sees of its state and its arguments; the graph never differs."""

    shared: Any = None

    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value

    def forward(self, x: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        seen: list[Any] = [x]
        everything = [self.value, type(self).shared, args, kwargs]
        return x + 1, str(read(everything, seen)), self.training


def paths(value: Any, prefix: tuple[int, ...] = ()) -> list[tuple[int, ...]]:
    """Where a value can be changed: sequences of child positions."""
    found = [prefix]
    for position, (_, child) in enumerate(children_of(value)):
        found += paths(child, (*prefix, position))
    return found[:20]


def children_of(value: Any) -> list[tuple[Any, Any]]:
    if isinstance(value, dict):
        return list(value.items())
    if isinstance(value, (list, tuple, collections.deque)):
        return list(enumerate(value))
    if isinstance(value, Slotted):
        return [(n, getattr(value, n)) for n in ("a", "b") if hasattr(value, n)]
    if isinstance(value, (Box, Record)):
        return list(vars(value).items())
    return []


def assign(root: Any, path: tuple[int, ...], new: Any) -> None:
    """Changes what `path` leads to, in place where its holder allows that."""
    holder: Any = root
    key: Any = "value"
    value = root.value
    for position in path:
        below = children_of(value)
        if position >= len(below):
            break
        if not isinstance(value, tuple):
            holder, (key, inner) = value, below[position]
        else:
            inner = below[position][1]
        value = inner
    if isinstance(holder, (list, dict, collections.deque)):
        holder[key] = new
    else:
        setattr(holder, key, new)


def extend(root: Any, path: tuple[int, ...], new: Any) -> None:
    """Adds to the container that `path` leads to."""
    value = root.value
    for position in path:
        below = children_of(value)
        if position >= len(below):
            break
        value = below[position][1]
    if isinstance(value, (list, collections.deque)):
        value.append(new)
    elif isinstance(value, collections.OrderedDict) and len(value) > 1:
        value.move_to_end(next(iter(value)))
    elif isinstance(value, dict):
        value["c"] = new
    elif isinstance(value, set):
        value.add(3)
    elif isinstance(value, (Box, Record)):
        value.c = new  # type: ignore[union-attr]
    elif isinstance(value, torch.Tensor) and value.dim() == 1:
        value.data = torch.arange(5)


CHANGES = ("assign", "extend", "class", "train", "back", "nothing", "argument", "keyword")


@pytest.fixture(scope="module")
def only_new_objects_in_collections() -> Iterator[None]:
    """Each capture searches the garbage collector's objects, and half a million of them are of
    libraries, imported long ago: without them, 2,000 examples take a third of the time."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.slow
@pytest.mark.usefixtures("only_new_objects_in_collections")
@given(data=st.data())
def test_results_are_eagers_whatever_changes(data: Any) -> None:
    start = data.draw(values, label="state")
    classes = [type("Arm", (Reader,), {"__module__": __name__}) for _ in range(2)]
    fast_module, eager = (cls(copy.deepcopy(start)) for cls in classes)
    fast = trident.optimize(fast_module)
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = {}
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(data.draw(st.integers(1, 3), label="changes")):
            for _ in range(2):
                mine, theirs = copy.deepcopy((args, kwargs)), copy.deepcopy((args, kwargs))
                x = torch.ones(4)
                got = fast(x, *mine[0], **mine[1])
                expected = eager(x, *theirs[0], **theirs[1])
                assert describe(got) == describe(expected)
            change = data.draw(st.sampled_from(CHANGES), label="change")
            new = data.draw(values, label="new")
            if change in ("assign", "extend"):
                path = data.draw(st.sampled_from(paths(eager.value)), label="path")
                for module in (fast_module, eager):
                    (assign if change == "assign" else extend)(module, path, copy.deepcopy(new))
            elif change == "class":
                for cls in classes:
                    cls.shared = copy.deepcopy(new)
            elif change == "train":
                fast_module.train(not fast_module.training)
                eager.train(not eager.training)
            elif change == "back":
                fast_module.value, eager.value = copy.deepcopy(start), copy.deepcopy(start)
            elif change == "argument":
                args = (*args, new)
            elif change == "keyword":
                kwargs = {"k": new, **kwargs}
        mine, theirs = copy.deepcopy((args, kwargs)), copy.deepcopy((args, kwargs))
        x = torch.ones(4)
        assert describe(fast(x, *mine[0], **mine[1])) == describe(eager(x, *theirs[0], **theirs[1]))
    stats = fast.stats()
    assert stats["calls"] == stats["hits"] + stats["misses"] + stats["fallbacks"]
    assert stats["errors"] == 0
    assert stats["hits"] > 0 and stats["fallbacks"] == 0
