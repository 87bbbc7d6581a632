"""What a call does to objects and to the process happens once, also where its trace is given up."""

from __future__ import annotations

import array
import contextvars
import ctypes
import io
import itertools
import logging
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import pytest
import torch

import trident

# The objects are rebuilt for each arm; each has its own function, since the global is what counts.
OBJECTS: dict[str, tuple[Callable[[], Any], Callable[[Any], float]]] = {}


def counted(make: Callable[[], Any]) -> Callable[[Callable[[Any], float]], None]:
    def add(step: Callable[[Any], float]) -> None:
        OBJECTS[step.__name__] = (make, step)

    return add


def numbers() -> Iterator[int]:
    yield from itertools.count()


for _name, _make in {
    "count": itertools.count,
    "generator": numbers,
    "iterator": lambda: iter(range(100)),
    "zip": lambda: map(int, range(100)),
    "cycle": lambda: itertools.cycle(range(100)),
}.items():
    OBJECTS[_name] = (_make, next)


@counted(bytearray)
def bytes_(obj: bytearray) -> float:
    obj.append(1)
    return len(obj)


@counted(lambda: array.array("i"))
def array_(obj: Any) -> float:
    obj.append(1)
    return len(obj)


@counted(io.StringIO)
def text(obj: io.StringIO) -> float:
    obj.write("a")
    return len(obj.getvalue())


@counted(lambda: numpy.zeros(1))
def numpy_array(obj: Any) -> float:
    obj[0] += 1
    return float(obj[0])


@counted(lambda: numpy.random.RandomState(0))
def random_state(obj: Any) -> float:
    return float(obj.randint(100))


@counted(lambda: (ctypes.c_int * 1)())
def ctypes_array(obj: Any) -> float:
    obj[0] += 1
    return float(obj[0])


@counted(lambda: memoryview(bytearray(1)))
def view_of_bytes(obj: memoryview) -> float:
    obj[0] += 1
    return obj[0]


@counted(threading.local)
def of_a_thread(obj: Any) -> float:
    obj.n = getattr(obj, "n", 0) + 1
    return float(obj.n)


@counted(lambda: contextvars.ContextVar("tests", default=0))
def of_a_context(obj: contextvars.ContextVar[int]) -> float:
    obj.set(obj.get() + 1)
    return obj.get()


@counted(threading.Lock)
def once(obj: Any) -> float:
    return float(obj.acquire(blocking=False))


@counted(threading.RLock)
def again(obj: Any) -> float:
    obj.acquire()
    return float(str(obj).partition("count=")[2][:1])


OBJECT: Any = None


def _of_global(step: Callable[[Any], float]) -> Callable[[torch.Tensor], torch.Tensor]:
    def call(x: torch.Tensor) -> torch.Tensor:
        return x + step(OBJECT)

    return call


def _of_closure(step: Callable[[Any], float]) -> Callable[[torch.Tensor], torch.Tensor]:
    kept = OBJECT

    def inner(x: torch.Tensor) -> torch.Tensor:
        return x + step(kept)

    def call(x: torch.Tensor) -> torch.Tensor:
        return inner(x) * 1

    return call


@pytest.mark.parametrize("place", [_of_global, _of_closure])
@pytest.mark.parametrize("name", OBJECTS)
def test_an_object_whose_contents_cannot_be_read(name: str, place: Any) -> None:
    global OBJECT
    make, step = OBJECTS[name]
    seen = []
    for optimized in (False, True):
        OBJECT = make()
        call = place(step)
        arm = trident.optimize(call) if optimized else call
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            seen.append([arm(torch.zeros(1 + n // 3)).tolist() for n in range(6)])
        OBJECT = None
    assert seen[0] == seen[1]


LOGGER = logging.getLogger("trident.tests.once")


def level(x: torch.Tensor) -> torch.Tensor:
    LOGGER.setLevel(LOGGER.level + 1)
    return x + 1


def print_options(x: torch.Tensor) -> torch.Tensor:
    torch.set_printoptions(precision=2)
    return x + 1


def numpy_errors(x: torch.Tensor) -> torch.Tensor:
    numpy.seterr(all="ignore")
    return x + 1


def filters(x: torch.Tensor) -> torch.Tensor:
    warnings.filterwarnings("ignore", "never")
    return x + 1


def disabled(x: torch.Tensor) -> torch.Tensor:
    logging.disable(10)
    return x + 1


def anomalies(x: torch.Tensor) -> torch.Tensor:
    torch.autograd.set_detect_anomaly(True)
    return x + 1


EFFECTS: list[tuple[Any, Callable[[], Any], Callable[[], Any]]] = [
    (level, lambda: LOGGER.setLevel(0), lambda: LOGGER.level),
    (
        print_options,
        lambda: torch.set_printoptions(precision=4),
        lambda: torch._tensor_str.PRINT_OPTS.precision,
    ),
    (numpy_errors, lambda: numpy.seterr(all="warn"), lambda: numpy.geterr()["over"]),
    (disabled, lambda: logging.disable(0), lambda: logging.root.manager.disable),
    (anomalies, lambda: torch.autograd.set_detect_anomaly(False), torch.is_anomaly_enabled),
    (filters, lambda: warnings.filters.clear(), lambda: len(warnings.filters)),  # type: ignore[attr-defined]
]


@pytest.mark.parametrize(
    ("function", "reset", "get"), EFFECTS, ids=[each[0].__name__ for each in EFFECTS]
)
def test_what_a_call_changes_in_the_process(
    function: Any, reset: Callable[[], Any], get: Callable[[], Any]
) -> None:
    seen = []
    with warnings.catch_warnings(), torch.no_grad():
        for arm in (function, trident.optimize(function)):
            found = []
            for _ in range(3):
                warnings.resetwarnings()
                warnings.simplefilter("ignore")
                reset()
                try:
                    arm(torch.ones(2))
                    found.append(get())
                finally:
                    reset()
            seen.append(found)
    assert seen[0] == seen[1]
