"""Types of the native module; its sources are csrc/python/bind_*.cpp."""

from collections.abc import Callable, Sequence
from types import CodeType, FunctionType, ModuleType, NotImplementedType
from typing import Any, Literal, TypedDict, TypeVar, final

import torch

from trident.capture.reads import Read
from trident.capture.template import Node
from trident.ir.registry import TypedTable
from trident.pipeline import SpecializationRecord

Result = TypeVar("Result")

# --- module.cpp

compiler: str  # that this build was made with, "g++ 12.2.0"

# --- bind_aten.cpp

def typed_ops() -> TypedTable:
    """Typed operators of this build: overload name to schema, shim for the CPU, shim for CUDA."""

def in_autocast_region() -> bool:
    """Whether the thread is in a `torch.autocast` context, be it one that turns autocast off."""

def autocast_cast(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The cast that autocast keeps of a tensor, made now if it keeps none."""

# --- bind_driver.cpp

@final
class Kernel:
    """One compiled variant of a Triton kernel."""

    @staticmethod
    def cuda(
        cubin: bytes,
        name: str,
        *,
        label: str,
        params: Sequence[str],
        shared: int,
        num_warps: int,
        num_ctas: int,
        cluster: Sequence[int],
        launch_pdl: bool,
        cooperative: bool,
        global_scratch_size: int,
        global_scratch_align: int,
        profile_scratch_size: int,
        profile_scratch_align: int,
        tensor_maps: Sequence[tuple[int, int, int, int, bool, bool, Sequence[int]]] = ...,
    ) -> Kernel: ...
    @staticmethod
    def interpreted(
        run: Callable[[tuple[int, int, int], Sequence[int | bool | float]], object],
        *,
        label: str,
        params: Sequence[str],
    ) -> Kernel: ...
    def load(self, device: int) -> None:
        """Makes it ready on a device, so that no launch has to."""

    @property
    def label(self) -> str: ...
    @property
    def params(self) -> list[str]: ...
    @property
    def driver(self) -> Literal["cuda", "cpu"]: ...

def cuda_available() -> bool:
    """Whether the CUDA driver can be loaded and sees a device."""

# --- bind_host.cpp

@final
class Program:
    """A loaded host program."""

    @staticmethod
    def load(path: str, kernels: Sequence[Kernel]) -> Program: ...
    def run(
        self, inputs: Sequence[torch.Tensor], symbols: Sequence[int] = ...
    ) -> list[torch.Tensor]: ...
    def capture(
        self,
        inputs: Sequence[torch.Tensor],
        symbols: Sequence[int],
        launches: CapturedLaunches,
    ) -> list[torch.Tensor]: ...
    @property
    def input_pointers(self) -> dict[int, int]: ...
    @property
    def output_pointers(self) -> dict[int, int]: ...
    def guard(self, symbols: Sequence[int]) -> bool: ...
    def numbers(self, symbols: Sequence[int]) -> list[int]:
        """The numbers in the call's result and effects; of doubles, the bits."""

    def add_variant(
        self, launch: int, choice: int, kernel: Kernel, params: Sequence[int]
    ) -> None: ...
    def serve_variants(self, source: Callable[[int, int], tuple[Kernel, list[int]]]) -> None:
        """Sets what compiles the kernel variant of a launch for a choice of its facts."""

    def prepare(self, inputs: Sequence[torch.Tensor], symbols: Sequence[int] = ...) -> int:
        """Compiles the variants that such a run needs; returns how many were missing."""

    @property
    def num_variants(self) -> int: ...
    @property
    def name(self) -> str: ...
    @property
    def num_inputs(self) -> int: ...
    @property
    def num_outputs(self) -> int: ...
    @property
    def num_symbols(self) -> int: ...
    @property
    def launches(self) -> int: ...
    @property
    def calls_typed(self) -> int: ...
    @property
    def calls_boxed(self) -> int: ...
    @property
    def arena_bytes(self) -> int: ...

@final
class CapturedLaunches:
    """Launches of a graph that can be pointed at other memory."""

    def __init__(self) -> None: ...
    def copy(
        self,
        kernel: Kernel,
        to: torch.Tensor,
        source: torch.Tensor,
        rows: int,
        blocks: int,
        input: int | None,
        output: int | None,
    ) -> None:
        """Launches a copy of the input, or into the output, on the stream that is captured."""

class CapturedInput:
    """How an input reaches the kernels of a graph."""

    def __init__(
        self,
        *,
        own: torch.Tensor | None,
        callers: torch.Tensor,
        argument: bool,
        pointed: bool,
        written: bool,
        launched: bool,
        alignment: int,
    ) -> None: ...

class GraphReplay:
    """A host program captured into a CUDA graph."""

    def __init__(
        self,
        graph: torch.cuda.CUDAGraph,
        device: int,
        inputs: Sequence[CapturedInput],
        outputs: Sequence[tuple[torch.Tensor, torch.Tensor | None]],
        launches: CapturedLaunches,
        copies: CapturedLaunches,
    ) -> None: ...
    @property
    def replays(self) -> int: ...

def release_arenas() -> None:
    """Gives the memory of idle arenas back to PyTorch's allocator."""

def idle_arena_bytes() -> int:
    """Bytes that arenas hold between calls."""

# --- bind_scm.cpp

@final
class Scm:
    """The Specialization Cache Module: the callable that a call enters once."""

    def __new__(
        cls,
        miss: Callable[[tuple[Any, ...], dict[str, Any]], Any],
        eager: Callable[..., Any],
        max_specializations: int,
    ) -> Scm: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...

@final
class MethodEntry:
    """The ``__call__`` of a class whose instances bind ``__func__``, optimized, to ``__self__``."""

    def __call__(self, method: object, /, *args: Any, **kwargs: Any) -> Any: ...
    def __get__(self, method: object, owner: type | None = ..., /) -> Any: ...

@final
class ModuleEntry:
    """An `Scm` as the ``__call__`` of a class: the first argument is the instance."""

    def __new__(cls, scm: Scm, /) -> ModuleEntry: ...
    def __call__(self, instance: object, /, *args: Any, **kwargs: Any) -> Any: ...
    def __get__(self, instance: object, owner: type | None = ..., /) -> Any: ...

@final
class Facts:
    """What one call shows: tensors and containers, those of the arguments first."""

    @property
    def unsupported(self) -> str | None: ...
    @property
    def tensors(self) -> list[torch.Tensor]: ...
    @property
    def num_argument_tensors(self) -> int: ...
    @property
    def containers(self) -> list[Any]: ...
    @property
    def soft_words(self) -> list[tuple[int, int, int, Any]]:
        """(position, kind, index, place) of the words that one specialization may leave open; see
        `trident.capture.soft_words.SoftWord`."""

    @property
    def num_argument_containers(self) -> int: ...
    @property
    def closed_lists(self) -> list[int]:
        """Positions of the containers that are lists whose contents are no part of the state."""

    @property
    def argument_words(self) -> list[int]:
        """The position of each argument's first word."""

    @property
    def state_word(self) -> int:
        """The position of the word that names the state."""

    @property
    def words(self) -> list[int]: ...
    @property
    def state_words(self) -> list[int]: ...
    @property
    def identities(self) -> list[Any]:
        """The objects whose addresses stand in the words."""
    def agree(self, other: Facts, /) -> bool: ...

def collect(scm: Scm, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Facts: ...
def publish(
    scm: Scm,
    facts: Facts,
    program: Program | None,
    inputs: Sequence[int],
    constants: list[torch.Tensor],
    nodes: list[Node],
    result_node: int,
    effects: list[tuple[int, int, Any, int]],
    reads: Reads,
    info: SpecializationRecord,
    symbolic: Sequence[int] = ...,
    inference: bool = ...,
    stages: Sequence[tuple[list[Node], list[tuple[int, int, Any, int]]]] = ...,
    casts: Sequence[tuple[int, torch.dtype, bool]] = ...,
) -> SpecializationRecord | None:
    """Publishes a specialization, or without a program that these facts run eagerly.

    ``symbolic``: positions of the words that are left open, ascending, those of the state counted
    behind the call's own; the program takes all of them as symbols, or none. ``inference``: the
    program runs in inference mode, whatever the caller's is. ``stages``: nodes and effects, by the
    stage of the program counted from 1, for the case that it raises there. ``casts``: positions of
    inputs of which the program takes autocast's cast, to what dtype, and whether in grad mode.

    Returns:
        The record of what had to make room, or None.
    """

def close_list(scm: Scm, list: list[Any], closed: bool) -> None:
    """Leaves the contents of a list out of the state, or takes them in again."""

def prepare(scm: Scm, facts: Facts) -> bool:
    """Whether a specialization serves these facts; compiles the kernel variants that it needs."""

def find(scm: Scm, facts: Facts) -> SpecializationRecord | None: ...
def run(
    scm: Scm, args: tuple[Any, ...], kwargs: dict[str, Any], compiled_now: bool
) -> tuple[bool, Any]: ...
def add_root(scm: Scm, root: object, /) -> None: ...
def use_graphs(
    scm: Scm,
    capture: Callable[
        [Program, SpecializationRecord, list[torch.Tensor], list[int], set[int]],
        GraphReplay | NotImplementedType | None,
    ],
    after_hits: int,
) -> None:
    """Hands specializations that have this many hits for the same sizes to `capture`."""

def count(scm: Scm, outcome: Literal["miss", "fallback", "error"], /) -> None: ...
def stats(scm: Scm, /) -> dict[str, int]: ...
def entries(scm: Scm, /) -> list[tuple[SpecializationRecord, int, bool]]:
    """Record, hits, and whether it is compiled, of each entry."""

def record(
    body: Callable[[], Result], refused: dict[Any, str]
) -> tuple[
    Result | None,
    BaseException | None,
    list[tuple[CodeType, dict[str, Any]]],
    tuple[str, str] | None,
]: ...

# --- bind_reads.cpp

@final
class Reads:
    """The present values of what a trace read; `publish` takes it over.

    Raises:
        ValueError: one of them cannot be described.
    """

    def __init__(self, reads: list[Read]) -> None: ...
    def unchanged(self) -> bool: ...

# --- bind_report.cpp

Described = tuple[list[int], list[int], dict[int, Any]]  # words, starts of the reads, objects

class Guards(TypedDict):
    words: list[int]
    symbolic: list[int]
    state_words: list[int] | None
    objects: dict[int, Any]
    reads: Described

word_tags: dict[str, int]
environment_words: int

def nearest(scm: Scm, facts: Facts) -> SpecializationRecord | None:
    """The record of the specialization from whose facts a call's differ least."""

def guards_of(scm: Scm, record: SpecializationRecord) -> Guards:
    """Raises KeyError: the specialization has been dropped."""

def present_reads(scm: Scm, record: SpecializationRecord) -> Described | None:
    """What the specialization's reads are now; None where one cannot be described.

    Raises KeyError: the specialization has been dropped.
    """

def describe_tensor_header(word: int, /) -> list[tuple[str, str]]: ...
def describe_device(word: int, /) -> str: ...
def describe_environment(words: list[int], /) -> list[tuple[str, str]]: ...
def class_changes(
    cls: type, before: int, now: int, /
) -> list[tuple[str, tuple[Any] | None, tuple[Any] | None]]:
    """Attributes that differ between two versions of a class: name, value before, value now.

    A value is a tuple of one, or None where there was none or it is gone. Without entries where one
    of the versions has been forgotten.
    """

def type_layout(cls: type, /) -> tuple[bool, bool, list[str]]:
    """Whether it is a builtin type, whether instances have a dictionary, names of slots."""

# --- bind_guards.cpp

def register_identity_type(cls: type, /) -> None: ...
def stateful_globals(function: FunctionType, /) -> list[tuple[str, Any]]: ...
def copy_set(original: set[Any], copy: set[Any], /) -> None:
    """Fills a new set with the elements of another; both then iterate, and grow, alike."""

def same_sets(left: set[Any], right: set[Any], /) -> bool:
    """Whether two sets hold the same objects in the same order, and `pop` would take the same."""

def changed_contents(held: list[tuple[Any, Any]], /) -> list[int]:
    """Positions of the dictionaries, lists and sets that do not hold the same objects in the same
    order as their copies."""

def set_registrations(id: int, /) -> None:
    """Makes a number a fact of every call from now on, in all threads; below 2**32."""

def hold_tensor_classes(hold: bool, /) -> None:
    """Whether calls go on with the number that the attributes of torch.Tensor had before."""

def set_library_predicate(predicate: Callable[[dict[str, Any]], bool], /) -> None: ...

# --- bind_builtins.cpp

class Diversion:
    """Builtins that do something else until `end`."""

    def divert(
        self,
        builtin: Callable[..., Any],
        types: tuple[type, ...],
        answer: Callable[..., Any],
        /,
    ) -> Callable[..., Any]:
        """Calls `answer` instead where the first or second argument is of exactly one of these
        types; of `int` and `float` where there is one argument. Returns what the builtin was."""

    def disguise(self, type: type, property: property, /) -> None:
        """Lets a class without `__class__` of its own have this one."""

    def end(self) -> None: ...

def builtin_but_for(
    function: Callable[..., Any], types: tuple[type, ...], answer: Callable[..., Any]
) -> Callable[..., Any]:
    """A builtin function, but that `answer` is called where the first or second argument is of
    exactly one of these types."""

# --- bind_modules.cpp

class ModuleLookups:
    """Attribute look-ups on modules in this thread, noted from construction until `end`.

    Of exactly these types. `note(module, name)` is called before each that `decide(globals)` of
    the code that makes it says is of interest, or, where it says None, that of the code's caller.
    """

    def __init__(
        self,
        types: tuple[type, ...],
        note: Callable[[ModuleType, str], None],
        decide: Callable[[dict[str, Any]], bool | None],
    ) -> None: ...
    def end(self) -> None: ...
