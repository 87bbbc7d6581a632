"""Autotuned kernels: the winner for a launch, known or to be found by one eager call."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from triton.runtime.autotuner import Autotuner
from triton.runtime.jit import TensorWrapper

from trident.errors import NotReadyError
from trident.kernels import flag_gems
from trident.kernels.hooks import Place
from trident.kernels.reasons import because
from trident.kernels.tuples import with_members

logger = logging.getLogger("trident")


class NeedsTuning(NotReadyError):
    """An autotuned kernel has no winner for these arguments yet; one eager call finds it.

    Attributes:
        tuner, launch_args, launch_kwargs: the launch, on a trace's tensors, its grid a keyword.
    """

    def __init__(
        self, tuner: Autotuner, args: tuple[Any, ...], kwargs: dict[str, Any], where: str
    ) -> None:
        name = tuner.base_fn.__name__
        super().__init__(f"kernel {name} is not autotuned for these arguments yet", where)
        self.tuner = tuner
        self.launch_args = args
        self.launch_kwargs = kwargs


def autotuner_classes() -> Iterator[type]:
    """`Autotuner` and its subclasses that launch in their own way."""
    waiting: list[type] = [Autotuner]
    while waiting:
        owner = waiting.pop()
        waiting += owner.__subclasses__()
        if "run" in vars(owner):
            yield owner


def launch_tuned(
    tuner: Autotuner,
    run: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    where: str,
) -> tuple[Any, list[Place]]:
    """Launches through an autotuner with its winner, by the autotuner's own Python.

    The winner depends on the values that make up its key: sizes among them are fixed, which the
    trace guards.

    Args:
        run: the class's own `run`; its benchmark must raise NeedsTuning.
        where: the user's place of the launch.

    Returns:
        The launch's result, and what another winner would show in.

    Raises:
        NeedsTuning: no winner is known.
    """
    given = {**dict(zip(tuner.arg_names, args, strict=False)), **kwargs}
    varying = [name for name in tuner.keys if isinstance(given.get(name), torch.SymInt)]
    takes = f"the autotuner's key of kernel {tuner.base_fn.__name__} takes {', '.join(varying)}"
    with because(takes):
        known = {name: _fixed(given[name]) for name in varying}
    args = tuple(
        known.get(name, value) for name, value in zip(tuner.arg_names, args, strict=False)
    ) + tuple(args[len(tuner.arg_names) :])
    kwargs = {name: known.get(name, value) for name, value in kwargs.items()}
    places: list[Place] = [(vars(tuner), "configs"), (vars(tuner), "fn")]
    borrowed = None
    cache = tuner.cache
    try:
        if len(tuner.configs) > 1 and _forms_known_keys(tuner):
            key: Any = tuning_key(tuner, args, kwargs)
            if not isinstance(cache, dict):
                tuner.cache = flag_gems.stored_winner(cache, key)
            if key not in tuner.cache:
                tuner.cache[key], for_good = _only_candidate(tuner, args, kwargs, where)
                borrowed = None if for_good else key
            if borrowed is None and type(cache) is dict:
                places.append((cache, key))
        return run(tuner, *args, **kwargs), places
    finally:
        tuner.nargs = None  # after an error Triton would keep the trace's tensors here
        if borrowed is not None:
            del tuner.cache[borrowed]
        tuner.cache = cache


def tune_on_scratch(problem: NeedsTuning) -> None:
    """Tunes a kernel for a launch, on tensors of zeros that are like the launch's.

    Triton's own `run` does it, with its benchmark, caches and hooks. Must not be called in a trace.

    Raises:
        Exception: whatever Triton raises.
    """
    storages: dict[int, torch.UntypedStorage] = {}

    def scratch(value: Any) -> Any:
        if isinstance(value, TensorWrapper):
            return TensorWrapper(scratch(value.base), value.dtype)
        if isinstance(value, tuple):
            return with_members(value, [scratch(item) for item in value])
        if not isinstance(value, torch.Tensor):
            return _fixed(value)
        storage = value.untyped_storage()
        if storage._cdata not in storages:
            zeros = torch.zeros(int(storage.nbytes()), dtype=torch.uint8, device=value.device)
            storages[storage._cdata] = zeros.untyped_storage()
        made = torch.empty(0, dtype=value.dtype, device=value.device)
        shape, strides = [int(n) for n in value.shape], [int(n) for n in value.stride()]
        return made.set_(storages[storage._cdata], int(value.storage_offset()), shape, strides)

    logger.info("tuning %s on scratch memory", problem.tuner.base_fn.__name__)
    problem.tuner.run(
        *(scratch(value) for value in problem.launch_args),
        **{
            "warmup": False,
            **{name: scratch(value) for name, value in problem.launch_kwargs.items()},
        },
    )


def _forms_known_keys(tuner: Autotuner) -> bool:
    return type(tuner).run is Autotuner.run or hasattr(tuner, "get_key")


def _fixed(value: Any) -> Any:
    return int(value) if isinstance(value, torch.SymInt) else value


def _only_candidate(
    tuner: Autotuner, args: tuple[Any, ...], kwargs: dict[str, Any], where: str
) -> tuple[Any, bool]:
    """The configuration that needs no benchmark, and whether Triton would come to the same.

    On the CPU there is no device to tune for: kernels run in the interpreter, and the first
    configuration is as good as any.
    """
    if tuner.early_config_prune is not None or tuner.perf_model is not None:
        raise NeedsTuning(tuner, args, kwargs, where)  # the user's functions run once for a key
    tuner.nargs = dict(zip(tuner.arg_names, args, strict=False))
    candidates = tuner.prune_configs(kwargs)
    if len(candidates) == 1:
        return candidates[0], True
    if candidates and not _can_benchmark(tuner, args, kwargs):
        logger.info("%s: %s, untuned on the CPU", tuner.base_fn.__name__, candidates[0])
        return candidates[0], False
    raise NeedsTuning(tuner, args, kwargs, where)


def _can_benchmark(tuner: Autotuner, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    if getattr(tuner, "_do_bench", None) is not None:  # the user's own
        return True
    for value in (*args, *kwargs.values()):
        tensor = value.base if isinstance(value, TensorWrapper) else value
        if isinstance(tensor, torch.Tensor) and tensor.device.type != "cpu":
            return True
    return False


def tuning_key(
    tuner: Autotuner, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[object, ...]:
    """The key under which an autotuner remembers its winner for these arguments of a launch."""
    given = {**dict(zip(tuner.arg_names, args, strict=False)), **kwargs}
    known = {name: value for name, value in given.items() if name in tuner.arg_names}
    if hasattr(tuner, "get_key"):  # a subclass that forms keys of its own, as FlagGems' does
        own: tuple[object, ...] = tuner.get_key(known)
        return own
    values = [known[name] for name in tuner.keys if name in known]
    dtypes = [str(value.dtype) for value in known.values() if hasattr(value, "dtype")]
    return (*values, *dtypes)
