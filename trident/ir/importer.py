"""Imports a captured FX graph into a verified Torch-MLIR module without losing anything.

Torch-MLIR's importer is made for functional graphs. The subclasses here keep the capture's
semantics instead: every tensor is a mutable ``!torch.tensor``, weights and constants are function
arguments, and each operation states the exact PyTorch overload it stands for together with the
geometry and storage of its results (``trident.*`` attributes, see ``trident.ir.attributes``).
"""

from __future__ import annotations

import dataclasses
import logging
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.fx
from torch._ops import OpOverload
from torch_mlir import ir
from torch_mlir.dialects import func as func_dialect
from torch_mlir.dialects import torch as torch_dialect
from torch_mlir.extras.fx_importer import ContextCache, FxImporter, GraphNodeImporter

from trident.errors import TridentError, UnsupportedError
from trident.ir import attributes, dtypes, graph_values, registry
from trident.ir import schema as schemas
from trident.ir.expressions import Real, Size
from trident.ir.launch_op import LAUNCH, LAUNCH_NAME
from trident.ir.literals import LiteralImporter
from trident.ir.schema import Kind, Parameter, Schema

if TYPE_CHECKING:
    from trident.capture.result import Capture

logger = logging.getLogger("trident")


@dataclasses.dataclass
class Imported:
    """A captured graph in Torch-MLIR.

    Attributes:
        module: verified; one function ``main`` whose arguments are the capture's inputs, then the
            constants.
        constants: names in ``capture.constants`` that became arguments, in order.
    """

    module: ir.Module
    constants: list[str]


def import_capture(capture: Capture) -> Imported:
    """Imports ``capture.graph``.

    Raises:
        UnsupportedError: for a node that has no representation, naming its operator and place.
    """
    context = ir.Context()
    torch_dialect.register_dialect(context)
    importer = _CaptureImporter(context, capture.size, capture.real)
    constants = importer.import_inputs_and_graph(
        capture.graph, [each.name for each in capture.inputs], capture.constants
    )
    try:
        importer.module.operation.verify()
    except ir.MLIRError as error:
        raise TridentError(
            f"the captured graph of {capture.name} became an invalid MLIR module; please report "
            f"this as a bug in Trident: {error}"
        ) from error
    return Imported(importer.module, constants)


class _TensorTypes(ContextCache):
    """Types without value semantics, cached by shape and dtype."""

    def __init__(self, context: ir.Context, size: Callable[[Any], Size]) -> None:
        super().__init__(context)
        self.size = size
        self._types: dict[tuple[tuple[int | str, ...], torch.dtype], ir.Type] = {}

    def tensor_type(self, value: torch.Tensor) -> ir.Type:
        """``!torch.tensor<[1,64],f32>``, with a question mark for each size that varies."""
        sizes = (self.size(each) for each in value.shape)
        key = (tuple(each if isinstance(each, int) else "?" for each in sizes), value.dtype)
        if key not in self._types:
            shape = ",".join(str(size) for size in key[0])
            text = f"!torch.tensor<[{shape}],{dtypes.spelling(value.dtype)}>"
            self._types[key] = ir.Type.parse(text, context=self._c)
        return self._types[key]

    def node_val_to_type(self, node: torch.fx.Node, *, mutable: bool = True) -> ir.Type:
        """The type of a node's value; tensors are mutable whatever the caller asks."""
        return self.value_info_to_type(node.meta.get("val"), mutable=True)

    def value_info_to_type(
        self, val: Any, *, tensor_meta: Any = None, mutable: bool = True
    ) -> ir.Type:
        """The type of a fake tensor, number or None."""
        if isinstance(val, torch.Tensor):
            return self.tensor_type(val)
        if isinstance(val, torch.SymInt):
            self.size(val)  # an operator says it beforehand, as attention its sequence lengths
            return ir.Type.parse("!torch.int", context=self._c)
        if isinstance(val, (torch.SymFloat, torch.SymBool)):
            raise UnsupportedError("a value that is only known at run time is not supported")
        return super().value_info_to_type(val, mutable=True)


class _CaptureImporter(FxImporter):
    """One module with one function."""

    def __init__(
        self,
        context: ir.Context,
        size: Callable[[Any], Size],
        real: Callable[[torch.fx.Node], Real],
    ) -> None:
        super().__init__(context=context, graph_node_importer_cls=_NodeImporter)
        self._cc = _TensorTypes(context, size)
        self._size = size
        self._real = real

    def import_inputs_and_graph(
        self, graph: torch.fx.Graph, names: Sequence[str], constants: dict[str, torch.Tensor]
    ) -> list[str]:
        """Imports ``graph`` as ``main``; returns the constants that became arguments."""
        storages = attributes.StorageNumbers()
        inputs = [
            node
            for node in graph.nodes
            if node.op == "placeholder" and not graph_values.is_number(node)
        ]
        if len(inputs) != len(names):
            raise TridentError(f"the graph has {len(inputs)} placeholders for {len(names)} inputs")
        used: dict[str, list[torch.fx.Node]] = {}
        for node in graph.nodes:
            if node.op == "get_attr":
                used.setdefault(str(node.target), []).append(node)
        arguments = [graph_values.tensor_value(node) for node in inputs]
        arguments += [graph_values.constant_value(nodes[0], constants) for nodes in used.values()]
        outputs = graph_values.output_nodes(graph)

        unknown = ir.Location.unknown(self._c)
        with self._c, unknown:
            argument_types = [self._cc.tensor_type(value) for value in arguments]
            result_types = [
                self._cc.tensor_type(graph_values.tensor_value(node)) for node in outputs
            ]
            function = func_dialect.FuncOp(
                "main", ir.FunctionType.get(argument_types, result_types), ip=self._m_ip
            )
            function.arg_attrs = ir.ArrayAttr.get(
                [
                    ir.DictAttr.get(
                        {
                            attributes.NAME: ir.StringAttr.get(name),
                            **attributes.geometry([value], storages, self._size),
                        }
                    )
                    for name, value in zip([*names, *used], arguments, strict=True)
                ]
            )
            block = ir.Block.create_at_start(function.body, argument_types)
        node_importer = _NodeImporter(self, self._c, self._cc, block)
        node_importer.storages = storages
        node_importer.size = self._size
        node_importer.real = self._real
        for node, value in zip(inputs, list(block.arguments)[: len(inputs)], strict=True):
            node_importer.bind_node_value(node, value)
        for nodes, value in zip(used.values(), list(block.arguments)[len(inputs) :], strict=True):
            for node in nodes:
                node_importer.bind_node_value(node, value)
        node_importer.import_nodes(graph.nodes)
        self.symbol_table.insert(function)
        return list(used)


class _NodeImporter(GraphNodeImporter):
    """Imports the nodes of a graph, one MLIR operation per operator."""

    storages: attributes.StorageNumbers
    size: Callable[[Any], Size]
    real: Callable[[torch.fx.Node], Real]

    def import_nodes(
        self,
        nodes: Iterable[torch.fx.Node],
        *,
        skip_placeholders_outputs: bool = False,
        import_symbolic_shape_expressions: bool = False,
    ) -> None:
        """Imports operators and the return; placeholders and constants are bound already."""
        self._literals = LiteralImporter(self._c)
        with ir.InsertionPoint(self._b):
            for node in nodes:
                loc = attributes.location(node, self._c)
                try:
                    self._import_node(loc, node)
                except UnsupportedError as error:
                    if error.where is not None:
                        raise
                    raise UnsupportedError(
                        f"{node.target}: {error.reason}", attributes.line(node)
                    ) from error
                except (ir.MLIRError, NotImplementedError, TypeError, KeyError) as error:
                    raise UnsupportedError(
                        f"{node.target} has no representation in Torch-MLIR ({error})",
                        attributes.line(node),
                    ) from error

    def _import_node(self, loc: ir.Location, node: torch.fx.Node) -> None:
        if node.op in ("placeholder", "get_attr"):
            return
        if node.op == "output":
            results = [
                self.resolve_node_value(each) for each in graph_values.output_nodes(node.graph)
            ]
            func_dialect.ReturnOp(results, loc=loc)
        elif graph_values.only_computes_size(node):
            return  # each operator that takes the number states it
        elif node.op != "call_function":
            raise UnsupportedError(f"nodes of kind {node.op} are not supported")
        elif node.target is operator.getitem:
            producer, index = node.args
            assert isinstance(producer, torch.fx.Node) and isinstance(index, int)
            self.bind_node_value(node, self.resolve_node_value(producer, index))
        elif node.target is LAUNCH:
            self._import_launch(loc, node)
        elif isinstance(node.target, OpOverload):
            self._import_torch_op_overload(loc, node)
        else:
            raise UnsupportedError("only PyTorch operators can be compiled")

    def _import_launch(self, loc: ir.Location, node: torch.fx.Node) -> None:
        tensors, index = node.args
        assert isinstance(tensors, (list, tuple)) and isinstance(index, int)
        with loc:
            ir.Operation.create(
                "torch.operator",
                operands=[self.resolve_node_value(each) for each in tensors],
                results=[],
                attributes={
                    "name": ir.StringAttr.get("trident.launch"),
                    attributes.OP: ir.StringAttr.get(LAUNCH_NAME),
                    attributes.NODE: ir.StringAttr.get(node.name),
                    attributes.INDEX: ir.IntegerAttr.get(ir.IntegerType.get_signless(64), index),
                    **attributes.where(node),
                },
                loc=loc,
            )

    def _import_torch_op_overload(
        self, loc: ir.Location, node: torch.fx.Node, concrete_target: OpOverload | None = None
    ) -> None:
        assert isinstance(node.target, OpOverload)
        schema = schemas.of(node.target)
        with loc:
            operands, scalar_positions = self._operands(loc, node, schema)
            values = graph_values.result_values(node, schema)
            spelled = schema
            if scalar_positions:
                # Torch-MLIR's operator for a number; the overload itself stays in `trident.op`.
                spelled = registry.scalar_twin(schema.qualified, scalar_positions) or schema
            returns_list = len(schema.results) == 1 and schema.results[0].type.is_list
            types = [self._cc.value_info_to_type(value) for value in values]
            operation = self._emit(
                f"torch.{spelled.namespace}.{spelled.key}",
                operands,
                [ir.Type.parse("!torch.list<tensor>")] if returns_list else types,
                {
                    attributes.OP: ir.StringAttr.get(schema.qualified),
                    attributes.NODE: ir.StringAttr.get(node.name),
                    **attributes.geometry(values, self.storages, self.size),
                    **attributes.where(node),
                },
                loc,
            )
            results = list(operation.results)
            if returns_list:
                unpack = ir.Operation.create(
                    "torch.prim.ListUnpack", operands=results, results=types, loc=loc
                )
                results = list(unpack.results)
                if not results:
                    return
        for index, value in enumerate(results):
            self.bind_node_value(node, value, index)

    def _operands(
        self, loc: ir.Location, node: torch.fx.Node, schema: Schema
    ) -> tuple[list[ir.Value], frozenset[int]]:
        """One operand per parameter, and where a number stands for a tensor."""
        operands = []
        scalar_positions = []
        given = graph_values.bind_arguments(node, schema)
        for position, (parameter, argument) in enumerate(
            zip(schema.parameters, given, strict=True)
        ):
            if (
                parameter.type.kind is Kind.TENSOR
                and not parameter.type.is_list
                and _is_number(argument)
            ):
                scalar_positions.append(position)
            operands.append(self._operand(loc, parameter, argument))
        return operands, frozenset(scalar_positions)

    def _operand(self, loc: ir.Location, parameter: Parameter, argument: Any) -> ir.Value:
        if isinstance(argument, torch.fx.Node):
            value = argument.meta.get("val")
            if isinstance(value, (list, tuple)):
                elements = [self.resolve_node_value(argument, i) for i in range(len(value))]
                return self._literals.make_list(elements, parameter.type, loc)
            if isinstance(value, torch.Tensor):
                return self.resolve_node_value(argument)
            if parameter.type.is_list:
                element = self._number(argument, parameter.type.kind, loc)
                elements = [element] * (parameter.length or 1)
                return self._literals.make_list(elements, parameter.type, loc)
            return self._number(argument, parameter.type.kind, loc)
        if parameter.type.is_list and isinstance(argument, (list, tuple)):
            elements = [self._element(each, parameter.type.kind, loc) for each in argument]
            return self._literals.make_list(elements, parameter.type, loc)
        if parameter.type.is_list and argument is not None:
            if parameter.length is None:
                raise UnsupportedError(f"argument '{parameter.name}' is no list")
            element = self._literals.scalar(argument, parameter.type.kind, loc)
            return self._literals.make_list([element] * parameter.length, parameter.type, loc)
        return self._literals.scalar(argument, parameter.type.kind, loc)

    def _element(self, argument: Any, kind: Kind, loc: ir.Location) -> ir.Value:
        if not isinstance(argument, torch.fx.Node):
            return self._literals.scalar(argument, kind, loc)
        if graph_values.is_number(argument):
            return self._number(argument, kind, loc)
        return self.resolve_node_value(argument)

    def _number(self, node: torch.fx.Node, kind: Kind, loc: ir.Location) -> ir.Value:
        """A number that a node computes: known, or an expression over the program's symbols."""
        value = node.meta.get("val")
        if isinstance(value, torch.SymFloat):
            return self._literals.real(self.real(node), loc)
        if isinstance(value, torch.SymInt):
            size = self.size(value)
            if not isinstance(size, int):
                return self._literals.size(size, loc)
            value = size
        elif value is not None and type(value) not in (bool, int, float):
            raise UnsupportedError("a number that is only known at run time is not supported")
        return self._literals.scalar(value, kind, loc)

    def _emit(
        self,
        name: str,
        operands: list[ir.Value],
        types: list[ir.Type],
        extra: dict[str, ir.Attribute],
        loc: ir.Location,
    ) -> ir.Operation:
        """The dialect's own operator where it has one that fits, else ``torch.operator``."""
        if self._c.is_registered_operation(name):
            operation = ir.Operation.create(
                name, operands=operands, results=types, attributes=extra, loc=loc
            )
            try:
                operation.verify()
                return operation
            except ir.MLIRError as error:
                logger.debug("%s does not fit Torch-MLIR's definition: %s", name, error)
                operation.erase()
        return ir.Operation.create(
            "torch.operator",
            operands=operands,
            results=types,
            attributes={"name": ir.StringAttr.get(name), **extra},
            loc=loc,
        )


def _is_number(argument: Any) -> bool:
    if isinstance(argument, torch.fx.Node):
        return graph_values.is_number(argument)
    return isinstance(argument, (bool, int, float))
