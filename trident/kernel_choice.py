"""The kernels of a capture's launches: one variant each, or a choice per call where facts vary."""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any, Literal

import sympy
from triton.backends.compiler import GPUTarget

from trident import _C
from trident.capture.result import Capture
from trident.errors import UnsupportedError
from trident.graphs import check_may_compile
from trident.ir import expressions
from trident.ir.expressions import Real, Size
from trident.kernels import (
    LaunchRequest,
    Param,
    Variant,
    compile_variants,
    current_target,
    native_kernel,
    only_read,
    specialize,
)
from trident.kernels.facts import (
    LaunchFact,
    Question,
    launch_facts,
    with_answers,
    with_known_integers,
    without_symbols,
)

logger = logging.getLogger("trident")

Driver = Literal["cuda", "cpu"]

# As many as a choice has bits.
_MAX_FACTS = 64

# The interpreter runs Python on the values themselves: divisibility changes nothing there.
_INTERPRETED_QUESTIONS = (Question.ONE, Question.WIDE)


@dataclasses.dataclass(frozen=True)
class Condition:
    """A fact of a launch, as `trident.ir.launch.LaunchCondition` asks for."""

    condition: str
    note: str


@dataclasses.dataclass(frozen=True)
class ChosenLaunch:
    """A launch with its kernel, as `trident.ir.launch.LaunchVariant` asks for."""

    kernel: int
    params: Sequence[Any]
    grid: tuple[Size, ...]
    facts: Sequence[Condition] = ()
    only_read: frozenset[int] = frozenset()


@dataclasses.dataclass(frozen=True)
class _ChosenParam:
    """A parameter with its expression, as `trident.ir.launch.LaunchParameter` asks for."""

    name: str
    type: str
    tensor: int | None
    bits: int
    value: Size | Real


class VariantChoice:
    """The variants of one launch, by the facts that hold.

    Args:
        request: the launch.
        capture: what it is part of; only asked here for expressions.
        driver: what runs it.
        target: what it is compiled for.

    Attributes:
        conditions: the facts that vary, in the order of the bits of a choice.
        present: the choice of the call being captured.
        present_variant: what Triton compiles for it.
        params: the parameters of all variants together.
    """

    def __init__(
        self, request: LaunchRequest, capture: Capture, driver: Driver, target: GPUTarget
    ) -> None:
        request = with_known_integers(request, capture.size)
        self._request = without_symbols(request)
        self._driver = driver
        self._target = target
        self._bits: list[LaunchFact] = []
        self._known: dict[Any, bool] = {}
        self.conditions: list[Condition] = []
        for fact in launch_facts(request):
            value = capture.size(fact.value)
            if driver == "cpu" and fact.question not in _INTERPRETED_QUESTIONS:
                continue
            if isinstance(value, int):
                continue  # an address: the answer stays
            answer = _known_answer(fact.question, value)
            if answer is not None:
                self._known[fact.path, fact.question] = answer
                continue
            self._bits.append(dataclasses.replace(fact, value=0))
            self.conditions.append(Condition(_condition(fact.question, value), str(fact)))
        if len(self._bits) > _MAX_FACTS:
            raise UnsupportedError(
                f"launch of {request.label}: more than {_MAX_FACTS} properties of its arguments "
                "vary between calls",
                request.where,
            )
        self.present = sum(fact.holds << bit for bit, fact in enumerate(self._bits))
        present = specialize(with_answers(request, self._known), target)
        # Only an integer that is 1 is no run-time parameter, so these are the parameters of all.
        ones = {
            (fact.path, fact.question): False
            for fact in self._bits
            if fact.question is Question.ONE and fact.holds
        }
        every = present
        if ones:
            every = specialize(with_answers(request, self._known | ones), target)
        self.params = [_with_expression(param, capture) for param in every.params]
        self._positions = {param.name: i for i, param in enumerate(every.params)}
        params = tuple(dataclasses.replace(param, value=None) for param in present.params)
        self.present_variant = dataclasses.replace(present, params=params)

    def variant(self, choice: int) -> Variant:
        """What Triton compiles where the facts of a choice hold."""
        answers = {
            (fact.path, fact.question): bool(choice >> bit & 1)
            for bit, fact in enumerate(self._bits)
        }
        return specialize(with_answers(self._request, self._known | answers), self._target)

    def kernel(self, choice: int) -> tuple[_C.Kernel, list[int]]:
        """The kernel for a choice, compiled if need be, and the positions of its parameters."""
        variant = self.variant(choice)
        kernel = native_kernel(variant, self._driver)
        return kernel, [self._positions[param.name] for param in variant.params]

    def only_read(self, variant: Variant) -> frozenset[int]:
        """Tensors of the launch that one of its variants is known not to write, by position.

        In the interpreter none is: nothing is compiled, and there are no graphs that could ask.
        """
        return only_read(variant) if self._driver == "cuda" else frozenset()

    def describe(self, choice: int) -> str:
        """The facts that hold of a choice, in words."""
        held = [str(fact) for bit, fact in enumerate(self._bits) if choice >> bit & 1]
        return ", ".join(held) or "no special argument"


class ChosenKernels:
    """The kernels of all launches of a capture.

    Attributes:
        kernels: of the launches whose kernel is fixed, each distinct one once.
        launches: one entry per launch of the capture, for the code generator.
        variants: what was compiled for the present call, one per launch.
    """

    def __init__(self, capture: Capture) -> None:
        driver: Driver = "cuda" if capture.device.type == "cuda" else "cpu"
        self._name = capture.name
        target = current_target()
        choices = [VariantChoice(request, capture, driver, target) for request in capture.launches]
        self.variants = [choice.present_variant for choice in choices]
        if driver == "cuda":
            compile_variants(self.variants)
        fixed = {
            variant.key: variant
            for variant, choice in zip(self.variants, choices, strict=True)
            if not choice.conditions
        }
        order = {key: index for index, key in enumerate(fixed)}
        self.kernels = [native_kernel(variant, driver) for variant in fixed.values()]
        self.launches = [
            ChosenLaunch(
                order.get(variant.key, 0) if not choice.conditions else 0,
                choice.params,
                tuple(capture.size(extent) for extent in request.grid),
                choice.conditions,
                choice.only_read(variant),
            )
            for variant, choice, request in zip(
                self.variants, choices, capture.launches, strict=True
            )
        ]
        self._choices = choices

    def serve(
        self, program: _C.Program, order: Sequence[int], writes_more: Callable[[], None]
    ) -> None:
        """Gives a program the variants of the present call, and what compiles further ones.

        Args:
            program: what was loaded.
            order: the launch of the capture that each launch of the program is.
            writes_more: called before a further variant first runs that may write tensors which the
                present one only reads. Graphs that were captured before have none of its launches.
        """
        choices, name = self._choices, self._name
        only_read_now = [launch.only_read for launch in self.launches]
        if not any(choices[index].conditions for index in order):
            return

        def compile_missing(launch: int, choice: int) -> tuple[_C.Kernel, list[int]]:
            check_may_compile(name, "the kernel variant that such arguments need")
            started = time.perf_counter()
            chosen = choices[order[launch]]
            made = chosen.kernel(choice)
            if not chosen.only_read(chosen.variant(choice)) >= only_read_now[order[launch]]:
                writes_more()
            logger.warning(
                "%s: compiled another variant of %s in %.0f ms: %s",
                name,
                made[0].label,
                1e3 * (time.perf_counter() - started),
                chosen.describe(choice),
            )
            return made

        for launch, index in enumerate(order):
            chosen = choices[index]
            if chosen.conditions:
                program.add_variant(launch, chosen.present, *chosen.kernel(chosen.present))
        program.serve_variants(compile_missing)


def _known_answer(question: Question, value: sympy.Expr) -> bool | None:
    """The answer that is the same for all values of the symbols, or None."""
    if question is Question.ONE and value.is_positive:
        # Sizes are at least 2, and so are multiples of them.
        coefficient, factors = value.as_coeff_mul()
        if coefficient >= 1 and all(each.is_Symbol for each in factors):
            return False
    if question in (Question.DIVISIBLE, Question.ALIGNED) and sympy.Mod(value, 16) == 0:
        return True
    return None


def _condition(question: Question, value: sympy.Expr) -> str:
    text = expressions.text(value)
    if question is Question.ONE:
        return f"{text} == 1"
    if question is Question.WIDE:
        return f"static_cast<int32_t>({text}) != {text}"
    return f"floor_mod({text}, 16) == 0"


def _with_expression(param: Param, capture: Capture) -> Any:
    if param.value is None:
        return param
    if isinstance(param.value, Real):
        return _ChosenParam(param.name, param.type, None, param.bits, param.value)
    return _ChosenParam(param.name, param.type, None, param.bits, capture.size(param.value))
