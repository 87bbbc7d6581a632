"""A typed view of the imported MLIR module, which the passes annotate.

Everything here is read off the module, never off the FX graph: the module is the one description of
the program.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from typing import TypeAlias

import sympy
import torch
from torch_mlir import ir

from trident.ir import attributes, dtypes, expressions
from trident.ir import schema as schemas
from trident.ir.expressions import Size
from trident.ir.launch_op import LAUNCH_NAME
from trident.ir.schema import Schema

_TENSOR_TYPE = re.compile(r"!torch\.tensor<\[([\d,?]*)\],(.+)>")


@dataclasses.dataclass(frozen=True)
class Layout:
    """Where a tensor's elements are.

    Attributes:
        offset: of the first element in the storage; like the strides, in elements.
    """

    dtype: torch.dtype
    sizes: tuple[Size, ...]
    strides: tuple[Size, ...]
    offset: Size

    @property
    def is_static(self) -> bool:
        """Whether sizes, strides and offset are numbers."""
        return all(isinstance(each, int) for each in (*self.sizes, *self.strides, self.offset))

    @property
    def end_bytes(self) -> int:
        """How many bytes of the storage lie before the end of the last element. Static layouts."""
        sizes = [int(size) for size in self.sizes]
        start = int(self.offset)
        if 0 in sizes:
            return start * self.dtype.itemsize
        last = sum(
            (size - 1) * int(stride) for size, stride in zip(sizes, self.strides, strict=True)
        )
        return (start + last + 1) * self.dtype.itemsize


@dataclasses.dataclass(eq=False)
class Value:
    """A tensor of the program.

    Attributes:
        name: the FX node's name, or the input's.
        storage: number of its storage.
        device: such as ``cpu`` or ``cuda:0``.
        producer: the operation that made it, or None for an input.
        same: set by the storage pass: the value that this one is the same tensor object as, because
            an in-place operator returned its argument.
        object: set by the storage pass: the value whose tensor object this one is from its producer
            on, with other sizes and strides. Where that is an input, ``input_index`` says so.
        source: set by the storage pass: the value that this one is a view of.
        tracked_view: whether eager records ``source`` as this view's base.
    """

    name: str
    layout: Layout
    storage: int
    device: str
    producer: Operation | None = None
    input_index: int | None = None
    same: Value | None = None
    object: Value | None = None
    source: Value | None = None
    tracked_view: bool = False

    def resolve(self) -> Value:
        """The value that first stood for this tensor object."""
        value = self
        while value.same is not None:
            value = value.same
        return value

    @property
    def is_fresh(self) -> bool:
        """Whether it is a tensor of its own, rather than another view of or name for one."""
        others = (self.same, self.object, self.source, self.input_index)
        return all(each is None for each in others)

    @property
    def on_cpu(self) -> bool:
        return self.device == "cpu"


Literal: TypeAlias = None | bool | int | float | str | torch.device | sympy.Expr | expressions.Real
Argument: TypeAlias = Value | Literal | list["Argument"]


@dataclasses.dataclass(eq=False)
class Operation:
    """One operator call.

    Attributes:
        schema: of the exact overload that ran.
        arguments: one per parameter; enums as c10's integers.
        results: flattened; None for results that are no tensors.
        node: name of the FX node.
        module: path of the module that ran it, or "".
        line: ``file.py:12`` in the user's code, or None.
        launch: of a Triton launch, its index; its arguments are the tensors.
        mlir: the operation in the module.
        stage: of an operator that may raise because of its tensors' values, the stage of the call
            (`trident.capture.failures`) that it belongs to; else None.
    """

    schema: Schema
    arguments: list[Argument]
    results: list[Value | None]
    node: str
    module: str
    line: str | None
    launch: int | None
    mlir: ir.Operation
    stage: int | None = None

    @property
    def name(self) -> str:
        return self.schema.qualified

    def inputs(self) -> Iterator[Value]:
        """All tensor arguments, those in lists too."""
        for argument in self.arguments:
            yield from tensors_in(argument)

    def outputs(self) -> Iterator[Value]:
        """All tensor results."""
        return (value for value in self.results if value is not None)


def tensors_in(argument: Argument) -> Iterator[Value]:
    """The tensors of one argument."""
    if isinstance(argument, Value):
        yield argument
    elif isinstance(argument, list):
        for each in argument:
            yield from tensors_in(each)


@dataclasses.dataclass(eq=False)
class Storage:
    """Memory that one or more values share; made by the storage pass.

    Attributes:
        values: in program order; the first owns the memory.
        owner: the operation that makes it, or None for an input's storage.
        escapes: an output reaches it, so the caller keeps it.
        resized: an operator may replace its memory.
        first, last: positions of the first and last operation that touches it, set by liveness.
        arena_offset: in bytes, where the memory plan placed it, or None.
    """

    number: int
    values: list[Value]
    owner: Operation | None
    device: str
    escapes: bool = False
    resized: bool = False
    first: int = 0
    last: int = 0
    arena_offset: int | None = None

    @property
    def nbytes(self) -> int:
        return max(value.layout.end_bytes for value in self.values)

    @property
    def planned(self) -> bool:
        return self.arena_offset is not None


@dataclasses.dataclass(eq=False)
class Program:
    """A whole program; passes run over it in the order of docs/design.md, section 6.

    Attributes:
        device: where planned storages live and launches run.
        module: owns every operation's ``mlir``, which does not keep it alive.
        storages: by number, filled by the storage pass.
        reshaped: set by the storage pass: values whose tensor object gets another layout later on.
        arena_bytes: set by the memory plan.
    """

    name: str
    device: torch.device
    module: ir.Module
    inputs: list[Value]
    operations: list[Operation]
    outputs: list[Value]
    storages: dict[int, Storage] = dataclasses.field(default_factory=dict)
    reshaped: set[Value] = dataclasses.field(default_factory=set)
    arena_bytes: int = 0

    def storage(self, value: Value) -> Storage:
        return self.storages[value.storage]

    def on_device(self, device: str) -> bool:
        """Whether ``device`` is the program's own."""
        return torch.device(device) == self.device


def read_program(module: ir.Module, name: str, device: torch.device) -> Program:
    """Reads the function ``main`` of a module that ``trident.ir.importer`` made."""
    function = next(iter(module.body.operations))
    block = function.regions[0].blocks[0]
    reader = _Reader()
    inputs = [
        reader.input(value, attrs, index)
        for index, (value, attrs) in enumerate(
            zip(block.arguments, function.arg_attrs, strict=True)
        )
    ]
    outputs: list[Value] = []
    for each in block.operations:
        operation = each.operation
        if operation.name == "func.return":
            outputs = [reader.tensor(value) for value in operation.operands]
        else:
            reader.read(operation)
    on = device
    if device.type == "cuda" and device.index is None:
        on = torch.device("cuda", 0)
    return Program(name, on, module, inputs, reader.operations, outputs)


class _Reader:
    """Keeps what each MLIR value stands for."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self._known: dict[ir.Value, Argument] = {}
        self._lists: dict[ir.Value, list[Value | None]] = {}
        self._types: dict[str, tuple[tuple[int, ...] | None, torch.dtype]] = {}

    def tensor(self, value: ir.Value) -> Value:
        known = self._known[value]
        assert isinstance(known, Value)
        return known

    def input(self, value: ir.Value, attrs: ir.DictAttr, index: int) -> Value:
        name = ir.StringAttr(attrs[attributes.NAME]).value
        made = self._value(value.type, attrs, 0, name, None)
        assert made is not None
        made.input_index = index
        self._known[value] = made
        return made

    def read(self, operation: ir.Operation) -> None:
        kind = operation.name
        if kind.startswith("torch.constant."):
            self._known[operation.results[0]] = _constant(operation, kind)
        elif kind == "torch.prim.ListConstruct":
            self._known[operation.results[0]] = [self._known[each] for each in operation.operands]
        elif attributes.VALUE in operation.attributes:
            spelling = ir.StringAttr(operation.attributes[attributes.VALUE]).value
            real = ir.StringAttr(operation.attributes["name"]).value == attributes.REAL_OPERATOR
            self._known[operation.results[0]] = (
                expressions.Real(spelling) if real else expressions.parse(spelling)
            )
        elif kind == "torch.prim.ListUnpack":
            owner = self._lists[operation.operands[0]]
            names = self.operations[-1]
            for index, result in enumerate(operation.results):
                value = self._value(
                    result.type, names.mlir.attributes, index, f"{names.node}_{index}", names
                )
                owner.append(value)
                self._known[result] = value
        else:
            self._operator(operation)

    def _operator(self, operation: ir.Operation) -> None:
        attrs = operation.attributes
        name = ir.StringAttr(attrs[attributes.OP]).value
        made = Operation(
            schema=schemas.lookup(name),
            arguments=[self._known[each] for each in operation.operands],
            results=[],
            node=ir.StringAttr(attrs[attributes.NODE]).value,
            module=_text(attrs, attributes.MODULE) or "",
            line=_text(attrs, attributes.LINE),
            launch=None,
            mlir=operation,
        )
        if attributes.STAGE in attrs:
            made.stage = ir.IntegerAttr(attrs[attributes.STAGE]).value
        if name == LAUNCH_NAME:
            made.launch = ir.IntegerAttr(attrs[attributes.INDEX]).value
        self.operations.append(made)
        results = list(operation.results)
        if len(results) == 1 and str(results[0].type).startswith("!torch.list<"):
            self._lists[results[0]] = made.results
            return
        for index, result in enumerate(results):
            label = made.node if len(results) == 1 else f"{made.node}_{index}"
            value = self._value(result.type, attrs, index, label, made)
            made.results.append(value)
            self._known[result] = value

    def _value(
        self,
        type_: ir.Type,
        attrs: ir.DictAttr,
        index: int,
        name: str,
        producer: Operation | None,
    ) -> Value | None:
        storage = ir.DenseI64ArrayAttr(attrs[attributes.STORAGE])[index]
        if storage < 0:
            return None
        static, dtype = self._shape(str(type_))
        sizes: tuple[Size, ...] = static or ()
        if static is None:
            sizes = attributes.read_sizes(ir.ArrayAttr(attrs[attributes.SIZES])[index])
        strides = attributes.read_sizes(ir.ArrayAttr(attrs[attributes.STRIDES])[index])
        offset = attributes.read_sizes(attrs[attributes.OFFSET])[index]
        device = ir.StringAttr(ir.ArrayAttr(attrs[attributes.DEVICE])[index]).value
        return Value(name, Layout(dtype, sizes, strides, offset), storage, device, producer)

    def _shape(self, text: str) -> tuple[tuple[int, ...] | None, torch.dtype]:
        """Sizes and dtype of a type; None for sizes that it does not state."""
        if text not in self._types:
            match = _TENSOR_TYPE.fullmatch(text)
            assert match is not None, text
            listed = [each for each in match.group(1).split(",") if each]
            sizes = None if "?" in listed else tuple(int(each) for each in listed)
            self._types[text] = (sizes, dtypes.from_spelling(match.group(2)))
        return self._types[text]


def _constant(operation: ir.Operation, kind: str) -> Literal:
    if kind == "torch.constant.none":
        return None
    value = operation.attributes["value"]
    if kind == "torch.constant.bool":
        return bool(ir.IntegerAttr(value).value)
    if kind == "torch.constant.int":
        return int(ir.IntegerAttr(value).value)
    if kind == "torch.constant.float":
        return float(ir.FloatAttr(value).value)
    if kind == "torch.constant.device":
        return torch.device(ir.StringAttr(value).value)
    assert kind == "torch.constant.str", kind
    return str(ir.StringAttr(value).value)


def _text(attrs: ir.DictAttr, key: str) -> str | None:
    return str(ir.StringAttr(attrs[key]).value) if key in attrs else None
