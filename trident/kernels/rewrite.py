"""A kernel's source turned into a Python function that the interpreter's tensors run through.

The function keeps the original's globals, closure cells and defaults; nothing is added to the
user's module. Four things differ from plain Python, as they do in compiled kernels: assigned
numbers become tensors, calls are resolved (helpers, library functions imported by name,
libdevice), loop indices are tensors, and `and`, `or`, `not` work elementwise.
"""

from __future__ import annotations

import ast
import types
from collections.abc import Callable
from typing import Any

import triton.language as tl
from triton.runtime.interpreter import interpreter_semantic

from trident.kernels.functions import IdentityCache, as_jit_function
from trident.kernels.language import resolve, resolve_attribute
from trident.kernels.tuples import with_members


def _to_value(value: Any) -> Any:
    """What a variable holds after an assignment: numbers are tensors, the rest stays."""
    if isinstance(value, tl.constexpr):
        value = value.value
    if isinstance(value, tuple):
        return with_members(value, [_to_value(item) for item in value])
    return interpreter_semantic.to_tensor(value, False)


def _to_annotated(annotation: Any, value: Any) -> Any:
    if annotation is tl.constexpr or (isinstance(annotation, str) and "constexpr" in annotation):
        return value
    return _to_value(value)


def _is_block(value: tl.tensor) -> bool:
    return bool(value.type.is_block())


def _logical(is_and: bool, operands: tuple[Callable[[], Any], ...]) -> Any:
    kept: list[tl.tensor] = []
    value: Any = is_and
    for operand in operands:
        value = operand()
        if not isinstance(value, tl.tensor):
            if bool(value) is not is_and:
                return value
        elif not _is_block(value) and bool(value) is not is_and and not kept:
            return interpreter_semantic.to_tensor(not is_and)
        else:
            kept.append(value)
    if not kept:
        return value
    result = kept.pop()
    while kept:
        left = kept.pop()
        result = left.logical_and(result) if is_and else left.logical_or(result)
    return result


def _logical_and(*operands: Callable[[], Any]) -> Any:
    return _logical(True, operands)


def _logical_or(*operands: Callable[[], Any]) -> Any:
    return _logical(False, operands)


def _logical_not(value: Any) -> Any:
    return value.__not__() if isinstance(value, tl.tensor) else not value


# Free variables of the rewritten function, so that they cannot clash with the user's globals.
_SUPPORT: dict[str, Any] = {
    "_trident_value": _to_value,
    "_trident_annotated": _to_annotated,
    "_trident_call": resolve,
    "_trident_method": resolve_attribute,
    "_trident_and": _logical_and,
    "_trident_or": _logical_or,
    "_trident_not": _logical_not,
}


def _support(name: str, *args: ast.expr) -> ast.Call:
    return ast.Call(ast.Name(f"_trident_{name}", ast.Load()), list(args), [])


class _Transformer(ast.NodeTransformer):
    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        self.generic_visit(node)
        node.value = _support("value", node.value)
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST | None:
        self.generic_visit(node)
        if node.value is None:
            return ast.copy_location(ast.Pass(), node)
        value = _support("annotated", node.annotation, node.value)
        return ast.copy_location(ast.Assign([node.target], value), node)

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        self.generic_visit(node)
        if not isinstance(node.target, ast.Name):
            return node
        current = ast.Name(node.target.id, ast.Load())
        value = _support("value", ast.BinOp(current, node.op, node.value))
        return ast.copy_location(ast.Assign([node.target], value), node)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> ast.AST:
        self.generic_visit(node)
        node.value = _support("value", node.value)
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.func, ast.Attribute):
            name = ast.Constant(node.func.attr)
            node.func = ast.copy_location(_support("method", node.func.value, name), node.func)
        else:
            node.func = ast.copy_location(_support("call", node.func), node.func)
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        self.generic_visit(node)
        name = "and" if isinstance(node.op, ast.And) else "or"
        operands = [ast.Lambda(_no_arguments(), value) for value in node.values]
        return ast.copy_location(_support(name, *operands), node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.op, ast.Not):
            return ast.copy_location(_support("not", node.operand), node)
        return node


def _no_arguments() -> ast.arguments:
    return ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])


def _rewrite(kernel: Any) -> Callable[..., Any]:
    function = as_jit_function(kernel)
    original = function.fn
    module = ast.parse(function.src)
    definition = module.body[0]
    assert isinstance(definition, ast.FunctionDef)
    # Defaults and annotations were evaluated once, when the user's module ran.
    definition.decorator_list = []
    definition.returns = None
    definition.args.defaults = []
    definition.args.kw_defaults = [None] * len(definition.args.kwonlyargs)
    for argument in ast.walk(definition.args):
        if isinstance(argument, ast.arg):
            argument.annotation = None
    definition.body = [_Transformer().visit(statement) for statement in definition.body]
    free = {**_SUPPORT, **{name: None for name in original.__code__.co_freevars}}
    factory_arguments = _no_arguments()
    factory_arguments.args = [ast.arg(name) for name in free]
    factory = ast.parse("def _trident_factory(): pass").body[0]
    assert isinstance(factory, ast.FunctionDef)
    factory.args = factory_arguments
    factory.body = [definition]
    module.body = [factory]
    ast.increment_lineno(module, _definition_line(function) - 1)
    ast.fix_missing_locations(module)
    code = compile(module, original.__code__.co_filename, "exec", dont_inherit=True)
    inner = _code_named(_code_named(code, "_trident_factory"), definition.name)

    cells = dict(zip(original.__code__.co_freevars, original.__closure__ or (), strict=True))
    closure = tuple(
        cells[name] if name in cells else types.CellType(_SUPPORT[name])
        for name in inner.co_freevars
    )
    result = types.FunctionType(
        inner, original.__globals__, original.__name__, original.__defaults__, closure
    )
    result.__kwdefaults__ = original.__kwdefaults__
    result.__qualname__ = original.__qualname__
    result.__module__ = original.__module__
    return result


def _definition_line(function: Any) -> int:
    for offset, line in enumerate(function.raw_src):
        if line.lstrip().startswith("def "):
            return int(function.starting_line_number + offset)
    return int(function.starting_line_number)


def _code_named(outer: types.CodeType, name: str) -> types.CodeType:
    for constant in outer.co_consts:
        if isinstance(constant, types.CodeType) and constant.co_name == name:
            return constant
    raise AssertionError(f"no code object {name} in {outer.co_name}")


class _Rewritten:
    """The rewritten function of a kernel, renewed when the kernel's source was replaced."""

    def __init__(self) -> None:
        self.source: str | None = None
        self.function: Callable[..., Any] | None = None


def _empty(_: Any) -> _Rewritten:
    return _Rewritten()


_rewritten = IdentityCache(_empty)


def interpretable(kernel: Any) -> Callable[..., Any]:
    """The kernel's Python function over the interpreter's tensors; made once per kernel.

    Args:
        kernel: a `JITFunction` or `InterpretedFunction`, launched or called by another kernel.
    """
    entry = _rewritten.get(kernel)
    source = as_jit_function(kernel).src
    function = entry.function
    if function is None or entry.source != source:
        function = _rewrite(kernel)
        entry.source, entry.function = source, function
    return function
