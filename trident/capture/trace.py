"""Tracing one call over its shadow."""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch._library.triton import set_wrap_triton_enabled
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.experimental.proxy_tensor import get_proxy_mode, make_fx

from trident import _C
from trident.capture import registrations
from trident.capture.addresses import Addresses, real_address_mod_16
from trident.capture.autocast import autocast_cache, casts_as_placeholders, mark_kept_casts
from trident.capture.closed_lists import refuse_reads
from trident.capture.device_guard import keep_device_guard
from trident.capture.disguise import check_attribute_tests
from trident.capture.failures import Failures
from trident.capture.gradients import GradientWatch
from trident.capture.graph import (
    constants_of,
    device_of,
    drop_profiler_ranges,
    explained,
    take_inputs,
)
from trident.capture.hidden import refuse_hidden_access
from trident.capture.inline import InlineOperators
from trident.capture.layouts import KernelLayouts
from trident.capture.module_attributes import look_ups_noted
from trident.capture.objects import slots_remembered, user_attributes
from trident.capture.observer import Observer
from trident.capture.outside import OUTSIDE, OutsideTensorError
from trident.capture.places import Places, current_line, tensor_names
from trident.capture.process_state import ProcessState
from trident.capture.result import Capture
from trident.capture.rules import call_rules
from trident.capture.shadow import Shadow
from trident.capture.soft_words import NeedsValueError, SoftWord, SymbolicWords
from trident.capture.surroundings import (
    check_surroundings,
    forget_source,
    grad_mode_of_caller,
    symbolic_trace,
    unreported,
    unseen_by_other_threads,
    unseen_trace,
)
from trident.capture.symbols import Symbols
from trident.capture.template import Surroundings, TemplateBuilder
from trident.capture.whole_operators import restore_operators, whole_operators
from trident.collection import no_garbage_collection
from trident.errors import NotReadyError, TridentError, UnsupportedError
from trident.ir.launch_op import LAUNCH
from trident.kernels import (
    LaunchRequest,
    LeftToTriton,
    captured_globals,
    hook_places,
    prepare_routing,
    record_launch,
    route_launches,
)

logger = logging.getLogger("trident")


def capture_call(
    name: str,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    facts: _C.Facts,
    symbolic: SymbolicWords | None = None,
) -> Capture:
    """Captures a call; see `TracedCall` for the arguments.

    Operators with Python kernels are traced into; those that cannot be stay calls.

    Raises:
        UnsupportedError: if the call uses something that Trident cannot compile.
        Exception: whatever the user's code raises on fake tensors.
    """
    opaque: dict[str, Exception] = {}
    while True:
        traced = TracedCall(name, function, args, kwargs, facts, symbolic, frozenset(opaque))
        try:
            capture = traced.capture()
            for operator in capture.python_operators:
                capture.python_operators[operator] = _first_line(opaque[operator])
            return capture
        except (NotReadyError, LeftToTriton):
            raise
        except Exception as error:
            if isinstance(error, OutsideTensorError) and error.roots:
                raise
            failed = {
                operator: problem
                for operator, problem in traced.failed_operators.items()
                if operator not in opaque
            }
            if not failed:
                if opaque:
                    operator, problem = next(iter(opaque.items()))
                    error.add_note(f"{operator} was not traced into: {problem}")
                raise
            for operator, problem in failed.items():
                logger.info("%s: %s stays a call: %s", name, operator, problem)
            opaque |= failed


def _first_line(problem: Exception) -> str:
    return (str(problem) or type(problem).__name__).partition("\n")[0]


class TracedCall:
    """One call being captured.

    Args:
        name: of the optimized callable, for messages.
        function: the original module or function.
        args: positional arguments of the call.
        kwargs: keyword arguments of the call.
        facts: the call's facts (`trident._C.Facts`).
        symbolic: the words of the call that are to be symbols; None where all are fixed.
        opaque: operators that are not traced into, though their kernels are Python code.
    """

    def __init__(
        self,
        name: str,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        facts: _C.Facts,
        symbolic: SymbolicWords | None = None,
        opaque: frozenset[str] = frozenset(),
    ) -> None:
        self._name = name
        self._function = function
        self._args = args
        self._kwargs = kwargs
        self._tensors: list[torch.Tensor] = facts.tensors
        self._containers: list[Any] = facts.containers
        self._closed: list[int] = facts.closed_lists
        self._num_arguments: int = facts.num_argument_tensors
        self._launches: list[LaunchRequest] = []
        self._operators = InlineOperators(opaque)
        self._numbers: list[SoftWord] = []  # numbers in arguments and state that are symbols
        self._symbols = None if symbolic is None else Symbols(facts, symbolic)
        self._mode = (
            KernelLayouts()
            if self._symbols is None
            else KernelLayouts(self._symbols.stand_ins.unused, self._symbols.stand_ins.environment)
        )
        self._addresses = Addresses(self._stand_in)
        self._outside: list[torch.Tensor] = []  # met in the trace, but no facts of the call
        self._outside_line: str | None = None

    def capture(self) -> Capture:
        """Traces the call in the caller's grad mode.

        Raises:
            UnsupportedError: if the call uses something that Trident cannot compile.
            Exception: whatever the user's code raises on fake tensors.
        """
        check_surroundings()
        prepare_routing()
        keep_device_guard()
        observer = self._observer = Observer(
            self._containers, (self._function, *self._args, *self._kwargs.values())
        )
        rules = {**call_rules(), None: observer.enter}
        registered = registrations.changes()
        self._caches_casts = autocast_cache(torch.is_autocast_cache_enabled())
        with grad_mode_of_caller(), self._mode:
            fakes = [self._fake(index, tensor) for index, tensor in enumerate(self._tensors)]
            for index, (tensor, fake) in enumerate(zip(self._tensors, fakes, strict=True)):
                address: Any = real_address_mod_16(tensor)
                if self._symbols is not None:
                    address = self._symbols.stand_ins.alignment(index, address)
                self._addresses.note(tensor, fake, address)
            numbers = self._symbolic_numbers()
            traced = make_fx(
                self._run, tracing_mode="real", pre_dispatch=False, _allow_non_fake_inputs=True
            )
            process = ProcessState()
            try:
                with (
                    unreported(),
                    unseen_by_other_threads(),
                    look_ups_noted(observer.note_names),
                    self._disguise() as refused,
                    no_garbage_collection(),
                    slots_remembered(),
                ):
                    outcome = _C.record(functools.partial(traced, *fakes, *numbers), rules)
            finally:
                observer.restore()
                changed = process.restore()
                self._mode.let_go_of_tensors()
        graph_module, error, executed, refusal = outcome
        if refusal is not None:
            raise UnsupportedError(*refusal)
        if observer.problem is not None:
            raise observer.problem
        if changed is not None:
            raise changed
        if self._outside:
            roots = observer.roots_of(self._outside)
            raise OutsideTensorError(roots, self._outside, self._outside_line)
        if refused:
            raise refused[0]
        if self._symbols is not None and self._symbols.reals.problems:
            raise self._symbols.reals.problems[0]
        if error is not None:
            raise explained(error)
        if registered != registrations.changes():
            raise UnsupportedError("operators' kernels were registered while the call was captured")
        assert graph_module is not None  # the other outcome
        if self._symbols is not None:
            check_attribute_tests(executed)
            self._symbols.check_floats()
        graph = graph_module.graph
        restore_operators(graph)
        drop_profiler_ranges(graph)
        forget_source(graph_module)
        constants = constants_of(graph_module)
        names = tensor_names(
            self._tensors, self._num_arguments, self._function, self._args, self._kwargs
        )
        casts = casts_as_placeholders(graph, names)
        inputs = take_inputs(graph, self._tensors, names) + casts
        reads = self._reads(executed)
        doubled = set(self._observer.past_clones.doubled())
        self._fix(word for word in self._numbers if word.is_item and word.index in doubled)
        try:
            recorded = _C.Reads(reads)
        except ValueError as problem:
            raise UnsupportedError(str(problem)) from problem
        self._observer.verify()
        return Capture(
            name=self._name,
            graph=graph,
            inputs=inputs,
            constants=constants,
            launches=self._launches,
            device=device_of(graph),
            nodes=self._nodes,
            result_node=self._result_node,
            effects=self._effects,
            reads=reads,
            recorded=recorded,
            codes=self._observer.codes,
            numbers=self._surroundings.numbers,
            stages=self._failures.stages,
            symbols=self._symbols,
            python_operators=dict.fromkeys(self._operators.called, ""),
            inference=self._inference,
        )

    @property
    def failed_operators(self) -> dict[str, Exception]:
        """Operators whose Python kernels could not be traced, each with its first error."""
        return self._operators.failed

    def _fake(self, index: int, tensor: torch.Tensor) -> torch.Tensor:
        if self._symbols is not None and self._symbols.stand_ins.is_symbolic(index):
            return self._symbols.stand_ins.fake(index)
        return self._mode.from_tensor(tensor, static_shapes=True)

    def _symbolic_numbers(self) -> list[Any]:
        """What stands for each number that is a symbol, in the order of `self._numbers`."""
        found = [] if self._symbols is None else self._symbols.stand_ins.numbers()
        self._numbers = [word for word, _ in found]
        return [value for _, value in found]

    def _disguise(self) -> contextlib.AbstractContextManager[list[Exception]]:
        return contextlib.nullcontext([]) if self._symbols is None else symbolic_trace()

    def _run(self, *values: Any) -> list[torch.Tensor]:
        """The call over shadow objects, for `make_fx`; returns the output tensors."""
        fakes = list(values[: len(self._tensors)])
        numbers = dict(zip(self._numbers, values[len(self._tensors) :], strict=True))
        items = {word: value for word, value in numbers.items() if word.is_item}
        self._fakes = fakes
        shadow = Shadow(self._tensors, fakes, self._containers, items, self._closed)
        self._observer.shadow = self._shadow = shadow
        function = shadow.clone(self._function)
        given = [shadow.clone(value) for value in (*self._args, *self._kwargs.values())]
        for word, number in numbers.items():
            if not word.is_item:
                given[word.index] = number
        self._fix(word for word in items if not shadow.has_clone(word.index))
        args = tuple(given[: len(self._args)])
        kwargs = dict(zip(self._kwargs, given[len(self._args) :], strict=True))
        self._places = Places(
            {id(module): path for path, module in function.named_modules()}
            if isinstance(function, torch.nn.Module)
            else {}
        )
        self._surroundings = Surroundings(self._symbols, self._observer.handed_out.container_of)
        self._failures = Failures(
            shadow, self._surroundings, TracedCall._run.__code__, lambda: self._observer.codes
        )
        self._annotate_nodes()
        gradients = GradientWatch(fakes)
        with (
            torch.autograd.set_multithreading_enabled(False),  # only this thread is traced
            unseen_trace(),
            refuse_hidden_access(self._stand_in) as problems,
            refuse_reads() as read_lists,
            route_launches(self._launch, self._addresses.is_aligned) as self._routed,
            set_wrap_triton_enabled(False),
            self._operators.active(),
            whole_operators(),
            self._caches_casts,
        ):
            result = function(*args, **kwargs)
        for refused in (*problems, *read_lists):
            raise refused  # the user's code caught it
        template = TemplateBuilder(shadow, self._surroundings)
        self._result_node = template.add(result, "the result")
        self._effects = template.add_changes(shadow.changes())
        self._nodes = template.nodes
        outputs = self._surroundings.outputs
        for tensor in outputs:
            if not isinstance(tensor, FakeTensor):
                raise UnsupportedError("the call returns a tensor that it did not compute")
            if isinstance(tensor, torch.nn.Parameter):
                raise UnsupportedError("the call returns a new parameter")
            if user_attributes(tensor):
                raise UnsupportedError("the call puts an attribute on a tensor that it returns")
        self._mode.refuse_unlike_kernel(outputs)
        gradients.check(outputs)
        self._inference = self._makes_inference_tensors(outputs)
        self._autocast = mark_kept_casts(self._proxies.tracer, fakes, outputs)
        return outputs

    def _fix(self, words: Iterable[SoftWord]) -> None:
        """Gives up symbols for numbers that code reads in the user's own objects.

        Raises:
            NeedsValueError: if there are any.
        """
        positions = [word.position for word in words]
        if positions:
            raise NeedsValueError(positions, "a number that varies is held by a class or the like")

    def _makes_inference_tensors(self, outputs: list[torch.Tensor]) -> bool:
        """Whether the code turned inference mode on for what it returns or assigns.

        Views of other tensors are as these are, in any mode.

        Raises:
            UnsupportedError: for some of it, which one program cannot do.
        """
        inputs = {tensor.untyped_storage()._cdata for tensor in self._fakes}
        made = {
            tensor.is_inference()
            for tensor in outputs
            if tensor.untyped_storage()._cdata not in inputs
        }
        if len(made) > 1:
            raise UnsupportedError("the call makes some of its results in inference mode")
        return made == {True}

    def _reads(self, executed: list[Any]) -> list[Any]:
        """What the call depends on besides its arguments and state."""
        changed = [self._containers[index] for _, index, _, _ in self._effects]
        for request in self._launches:
            for name, namespace, _ in captured_globals(request.kernel):
                self._observer.add_read(namespace, name)
            for namespace, name in hook_places(request.kernel):
                self._observer.add_read(namespace, name)
        for namespace, key in self._routed.places:
            self._observer.add_read(namespace, key)
        for operator in self._operators.custom_ops.values():
            for name in ("_backend_fns", "_disabled_kernel"):
                self._observer.add_read(vars(operator), name)
        return [*self._observer.finish(changed, executed), *self._autocast]

    def _annotate_nodes(self) -> None:
        """Notes on each node of the trace where it comes from, and what had been changed before."""
        proxies = get_proxy_mode()
        if proxies is None:
            raise TridentError("make_fx runs without its proxy mode; please report this")
        self._proxies = proxies
        graph = proxies.tracer.graph
        create_node = graph.create_node

        def create(*args: Any, **kwargs: Any) -> torch.fx.Node:
            node: torch.fx.Node = create_node(*args, **kwargs)
            if node.op == "call_function":
                node.meta["where"] = self._places.current()
                self._observer.keeping(lambda: self._failures.meet(node))
            return node

        vars(graph)["create_node"] = create
        if self._symbols is not None:
            vars(proxies)["__sym_dispatch__"] = self._symbols.reals.intercept(
                proxies.__sym_dispatch__
            )

    def _launch(
        self, kernel: Any, args: tuple[Any, ...], kwargs: dict[str, Any], grid: Any
    ) -> None:
        request, tensors = record_launch(
            kernel,
            args,
            kwargs,
            grid,
            self._addresses.mod_16,
            None if self._symbols is None else self._symbols.reals.real_of,
        )
        self._launches.append(request)
        LAUNCH([self._stand_in(tensor) for tensor in tensors], len(self._launches) - 1)

    def _stand_in(self, tensor: torch.Tensor) -> torch.Tensor:
        """What stands in the trace for a tensor that the user's code got past the clones."""
        if isinstance(tensor, FakeTensor):
            return tensor
        fake = self._shadow.fake_of(tensor)
        if fake is None:
            line = current_line()
            self._outside_line = self._outside_line or line
            self._outside.append(tensor)
            raise UnsupportedError(OUTSIDE, line)
        return fake
