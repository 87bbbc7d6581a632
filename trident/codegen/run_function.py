"""The `run` function: one statement per step, in sections named after the model's modules."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence

from trident.codegen import names
from trident.codegen.boxed_calls import BoxedCalls
from trident.codegen.launches import Launches
from trident.codegen.scope import Scope
from trident.codegen.symbols import symbols_in
from trident.codegen.typed_calls import TypedCalls, integer_array
from trident.ir import dtypes, expressions
from trident.ir.program import Layout, Operation, Value
from trident.ir.real_arithmetic import Definition
from trident.ir.steps import (
    Allocate,
    Call,
    GiveOwned,
    GiveReference,
    GiveView,
    HostProgram,
    InputRef,
    Launch,
    MakeView,
    Release,
    Step,
)

# g++ takes more than linear time in the length of a function.
_LONGEST_SECTION = 200


@dataclasses.dataclass
class _Section:
    """Consecutive steps of one part of the model; ``gives``: those that store the outputs."""

    title: str
    function: str
    gives: bool = False
    lines: list[str] = dataclasses.field(default_factory=list)
    steps: int = 0


class RunFunction:
    """Writes all steps; asks the emitters of calls and launches for their statements."""

    def __init__(
        self,
        scope: Scope,
        typed: TypedCalls,
        boxed: BoxedCalls,
        launches: Launches,
        python_operators: Collection[str] = (),
    ) -> None:
        self._scope = scope
        self._typed = typed
        self._boxed = boxed
        self._launches = launches
        self._python_operators = python_operators
        self._sections: list[_Section] = []
        self._layouts: dict[str, str] = {}
        self._module = ""
        self._line: str | None = None
        self._stage = 0
        self.has_stages = False

    def text(self, host: HostProgram) -> str:
        """The section functions and `run`; and `give`, which it ends with, in a call of stages.

        That stores the outputs that there are, also where `run` came to no end.
        """
        self.has_stages = any(
            isinstance(each, Call) and each.operation.stage for each in host.steps
        )
        first_output = _first_output(host.steps)
        for position, step in enumerate(host.steps):
            self._add(step, gives=position >= first_output)
        functions = [
            f"// {names.comment(section.title)}\n"
            f"static trident_status {section.function}(trident_frame* frame) {{\n"
            + _preamble(section.lines, self._scope.definitions)
            + "".join(f"{names.wrap(line, 2)}\n" for line in section.lines)
            + "  return 0;\n}\n"
            for section in self._sections
        ]
        calls = [each.function for each in self._sections]
        if self.has_stages:
            gives = [each.function for each in self._sections if each.gives]
            functions.append(_calling("give", gives))
            calls = [each for each in calls if each not in gives] + ["give"]
        return "\n".join([*functions, _calling("run", calls)])

    def layouts(self) -> list[str]:
        """Definitions of the layouts that allocations and views use."""
        return list(self._layouts.values())

    def _add(self, step: Step, gives: bool) -> None:
        operation = step.operation if isinstance(step, (Call, Launch, Allocate)) else None
        if gives:
            section = self._section("outputs", "the outputs", gives=True)
        elif operation is not None or not self._sections:
            section = self._section_of(operation)
        else:
            section = self._sections[-1]
        section.steps += 1
        if operation is not None:
            section.lines += self._place_comments(operation, section)
        if isinstance(step, Call) and step.operation.stage not in (None, self._stage):
            self._stage = step.operation.stage
            section.lines.append(f"frame->stage = {self._stage};")
        statements = self._statements(step)
        given = self._given(step) if gives and self.has_stages else None
        if given is not None:
            statements = [f"if ({given} != nullptr) {{", *(f"  {s}" for s in statements), "}"]
        elif len(statements) > 1 and isinstance(step, (Call, Allocate, MakeView, GiveView)):
            statements = ["{", *(f"  {statement}" for statement in statements), "}"]
        section.lines += statements

    def _given(self, step: Step) -> str | None:
        """What a step that stores an output reads, if `run` may not have come to make it."""
        place = step.place if isinstance(step, GiveReference) else None
        if isinstance(step, (GiveView, MakeView)):
            place = step.base
        return None if place is None or isinstance(place, InputRef) else self._scope.tensor(place)

    def _section_of(self, operation: Operation | None) -> _Section:
        module = operation.module if operation is not None else ""
        part = _part(module)
        return self._section(part or "forward", part or "the call")

    def _section(self, function: str, title: str, gives: bool = False) -> _Section:
        current = self._sections[-1] if self._sections else None
        if current is None or current.title != title or current.steps >= _LONGEST_SECTION:
            current = _Section(title, self._scope.functions.unique(f"run_{function}"), gives)
            self._sections.append(current)
            self._module, self._line = "", None
        return current

    def _place_comments(self, operation: Operation, section: _Section) -> list[str]:
        lines = []
        if operation.module != self._module and operation.module != section.title:
            lines += ["", f"// {names.comment(operation.module)}"] if operation.module else [""]
            self._line = None
        self._module = operation.module
        if operation.line is not None and operation.line != self._line:
            lines.append(f"// {names.comment(operation.line)}")
        self._line = operation.line
        return lines

    def _statements(self, step: Step) -> list[str]:
        scope = self._scope
        match step:
            case Call(typed=True):
                return self._typed.statements(step)
            case Call():
                return [*self._boxed.statements(step), *self._expectations(step)]
            case Launch():
                return self._launches.statements(step)
            case Allocate(slot, layout, on_cpu):
                before, name = self._layout(layout)
                text = f"&{name}, {int(on_cpu)}, &{scope.tensor(slot)}"
                return [*before, f"TRIDENT_TRY(api->allocate(frame, {text}));"]
            case MakeView(slot, base, layout):
                before, name = self._layout(layout)
                text = f"{scope.tensor(base)}, &{name}, 0"
                return [*before, f"TRIDENT_TRY(api->view({text}, &{scope.tensor(slot)}));"]
            case Release(slot):
                return [f"api->release(&{scope.tensor(slot)});"]
            case GiveView(output, base, layout, tracked):
                before, name = self._layout(layout)
                text = f"{scope.tensor(base)}, &{name}, {int(tracked)}"
                return [*before, f"TRIDENT_TRY(api->view({text}, &out[{output}]));"]
            case GiveReference(output, place):
                return [f"out[{output}] = api->retain({scope.tensor(place)});"]
            case GiveOwned(output, slot):
                name = scope.tensor(slot)
                return [f"out[{output}] = {name};", f"{name} = nullptr;"]

    def _expectations(self, call: Call) -> list[str]:
        """Checks of what an operator gave whose fake implementation may be wrong."""
        name = call.schema.qualified
        if call.schema.namespace == "aten" and name not in self._python_operators:
            return []
        schema, operation = call.schema, call.operation
        values: list[Value | None] = list(operation.outputs())
        if not (len(schema.results) == 1 and schema.results[0].type.is_list):
            values = [operation.results[index] for index in schema.fresh_results]
        statements: list[str] = []
        for slot, value in zip(call.results, values, strict=True):
            if slot is None or value is None:
                continue
            before, layout = self._layout(value.layout)
            text = f"{self._scope.tensor(slot)}, &{layout}, {int(value.on_cpu)}, "
            check = f"TRIDENT_TRY(api->expect(frame, {text}{names.string(name)}));"
            statements += ["{", *before, check, "}"] if before else [check]
        return statements

    def _layout(self, layout: Layout) -> tuple[list[str], str]:
        """Statements that make a layout, and its name; one that is static needs no statements."""
        if not layout.is_static:
            return [
                integer_array("sizes", layout.sizes),
                integer_array("strides", layout.strides),
                f"const trident_layout layout = {{{dtypes.code(layout.dtype)}, "
                f"{len(layout.sizes)}, sizes, strides, {expressions.text(layout.offset)}}};",
            ], "layout"
        text = layout_literal(self._scope, layout)
        name = f"kLayout{len(self._layouts)}"
        definition = f"static const trident_layout {name} = {text};"
        known = self._layouts.setdefault(text, definition)
        return [], known.split()[3]


def _first_output(steps: Sequence[Step]) -> int:
    """The position of the steps that store the outputs, with the views that they take: the last."""
    position = len(steps)
    while position and isinstance(
        steps[position - 1], (GiveView, GiveReference, GiveOwned, MakeView)
    ):
        position -= 1
    return position


def _calling(name: str, functions: Sequence[str]) -> str:
    """A function that calls others in turn."""
    body = "".join(f"  TRIDENT_TRY({each}(frame));\n" for each in functions)
    unused = "" if functions else "  (void)frame;\n"
    return f"static trident_status {name}(trident_frame* frame) {{\n{unused}{body}  return 0;\n}}\n"


def layout_literal(scope: Scope, layout: Layout) -> str:
    """A trident_layout initializer."""
    sizes = scope.constants.ints([int(size) for size in layout.sizes])
    strides = scope.constants.ints([int(stride) for stride in layout.strides])
    return (
        f"{{{dtypes.code(layout.dtype)}, {len(layout.sizes)}, {sizes}, {strides}, "
        f"{names.integer(int(layout.offset))}}}"
    )


def _preamble(lines: list[str], definitions: Sequence[Definition]) -> str:
    """Short names for what the section uses of the frame."""
    text = "\n".join(lines)
    made = ""
    if "in[input::" in text:
        made += "  const trident_tensor* in = frame->inputs;\n"
    if "t[slot::" in text:
        made += "  trident_tensor* t = frame->slots;\n"
    if "num[number::" in text:
        made += "  const trident_tensor* num = frame->number_tensors;\n"
    if "out[" in text:
        made += "  trident_tensor* out = frame->outputs;\n"
    made += symbols_in(text, "frame->symbols", definitions)
    return made if made or "frame" in text else "  (void)frame;\n"


def _part(module: str) -> str:
    """The part of the model that a module belongs to: ``model.layers.3`` or ``model.norm``."""
    parts = module.split(".")
    for position, part in enumerate(parts):
        if part.isdigit():
            return ".".join(parts[: position + 1])
    return ".".join(parts[:2])
