"""The miss path: what happens when native code finds no specialization for a call."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

import torch

from trident import _C
from trident.attempts import Attempts
from trident.capture.closed_lists import ClosedListError
from trident.capture.gradients import RecordsGradients, may_record
from trident.capture.leaves import register_loaded_leaves
from trident.capture.outside import OutsideRoots, OutsideTensorError
from trident.capture.places import keep_only_place
from trident.capture.reads import ReadSet
from trident.collection import release_trace
from trident.errors import (
    BuildError,
    ChangedError,
    HintError,
    KeepsChangingError,
    NotPreparedError,
    NotReadyError,
    RaisedBeforeError,
    TridentError,
    UnsupportedError,
)
from trident.graphs import (
    HITS_BEFORE_AUTOMATIC_CAPTURE,
    HITS_BEFORE_CAPTURE,
    capture_graph,
    check_may_compile,
)
from trident.growing_lists import GrowingLists
from trident.kernels import NeedsTuning, tune_on_scratch
from trident.limits import RaisedCalls, RecompilationLimit, Waits
from trident.options import Options
from trident.pipeline import CHANGED, SpecializationRecord, compile_call
from trident.report.describe import describe_arguments
from trident.report.guards import log_guards
from trident.report.misses import MissHistory
from trident.report.refused import RefusedPlaces
from trident.report.warnings import VALUES_MATTER, Warnings, explain_problem

logger = logging.getLogger("trident")

# How many calls that may record gradients are captured in vain.
_MAX_RECORDED = 2

# The most launches that `prepare` tunes in one call.
_MAX_TUNED_LAUNCHES = 256

# Captures patch Triton's launch path and run PyTorch's tracing machinery: one at a time.
_capture_lock = threading.RLock()


class _Thread(threading.local):
    capturing = False


_thread = _Thread()


class Optimizer:
    """The Python side of one optimized callable: what happens when native code finds no match."""

    def __init__(
        self,
        function: Callable[..., Any],
        options: Options,
    ) -> None:
        self.function = function
        self.name = _name_of(function)
        self.options = options
        register_loaded_leaves()
        self.scm = _C.Scm(self.miss, function, options["max_specializations"])
        _C.add_root(self.scm, function)
        if options["graphs"]:
            hits = (
                HITS_BEFORE_CAPTURE if options["graphs"] is True else HITS_BEFORE_AUTOMATIC_CAPTURE
            )
            _C.use_graphs(self.scm, capture_graph, hits)
        self.records: list[SpecializationRecord] = []
        self._attempts = Attempts(
            self.name, function, options["dynamic"], options["max_specializations"]
        )
        self._lists = GrowingLists(self.scm)
        self._roots = OutsideRoots(self.scm)
        self._recompilation = RecompilationLimit(self.scm, options["max_specializations"])
        self._raised = RaisedCalls()
        self._waits = Waits()
        self._recorded_gradients = 0
        self._refused_places = RefusedPlaces(function)
        self.misses = MissHistory(self.scm, self.name, function)
        self.warnings = Warnings(self.name, options["max_specializations"], self.misses)

    def miss(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Serves a call that no specialization matches; native code calls it."""
        if _thread.capturing:
            # An optimized callable inside another capture: the outer trace takes it in.
            return self.function(*args, **kwargs)
        with _capture_lock:
            register_loaded_leaves()
            # Another thread may have compiled the same call while this one waited.
            found, result = _C.run(self.scm, args, kwargs, compiled_now=False)
            if found:
                return result
            try:
                check_may_compile(self.name, "this call")
            except NotPreparedError:
                _C.count(self.scm, "error")
                raise
            facts = _C.collect(self.scm, args, kwargs)
            record = SpecializationRecord(len(self.records), describe_arguments(args, kwargs))
            problem = self._left_to_eager(facts)
            if problem is None:
                self.misses.note(facts, record.arguments)
                facts = self._without_grown_lists(facts, args, kwargs)
                problem = self._compile(args, kwargs, facts, record)
                if self._mends(problem, facts):
                    return self.miss(args, kwargs)
                strict = self.options["on_unsupported"] == "raise"
                if not record.limited and (problem is None or not strict):
                    self._recompilation.note(record)
                if problem is None:
                    found, result = _C.run(self.scm, args, kwargs, compiled_now=True)
                    if found:
                        return result
                    problem = ChangedError(CHANGED)
            waits = isinstance(problem, NotReadyError) and self._waits.allows(problem, facts)
        if waits or isinstance(problem, RaisedBeforeError):
            return self._run_eagerly_first(problem, args, kwargs, facts, record)
        return self._fall_back(problem, args, kwargs, facts, record)

    def _left_to_eager(self, facts: _C.Facts) -> Exception | None:
        """Why a call is not even captured, of those that could be."""
        if facts.unsupported is not None:
            return None
        return self._raised.pop(facts) or self._recompilation.check(facts)

    def _run_eagerly_first(
        self,
        problem: Exception | None,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        facts: _C.Facts,
        record: SpecializationRecord,
    ) -> Any:
        """Runs eagerly once, which makes the call ready to be captured, then compiles it."""
        try:
            result = self.function(*args, **kwargs)
        except Exception as error:
            note = problem.note if isinstance(problem, RaisedBeforeError) else ""
            self._count_error(facts, error, note)
            raise
        with _capture_lock:
            later = _C.collect(self.scm, args, kwargs)
            # A call that changed what it depends on is compiled when it comes back to it.
            changed = later.words != facts.words or later.state_words != facts.state_words
            problem = problem if changed else self._compile(args, kwargs, later, record)
            while self._mends(problem, later):
                later = _C.collect(self.scm, args, kwargs)
                problem = self._compile(args, kwargs, later, record)
            _C.count(self.scm, "miss" if problem is None else "fallback")
            if isinstance(problem, NotReadyError):
                self._waits.allows(problem, later)
            elif problem is not None:
                self._remember_unsupported(problem, later, record)
                self.warnings.ran_eagerly(problem)
        return result

    def prepare(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Compiles what the call would need, without running it.

        Kernels that are not autotuned for the call yet are tuned, on memory of their own.
        """
        with _capture_lock:
            register_loaded_leaves()
            facts = _C.collect(self.scm, args, kwargs)
            if facts.unsupported is None and _C.prepare(self.scm, facts):
                return
            facts = self._without_grown_lists(facts, args, kwargs)
            record = SpecializationRecord(len(self.records), describe_arguments(args, kwargs))
            problem = self._compile(args, kwargs, facts, record)
            if self._mends(problem, facts):
                self.prepare(args, kwargs)
                return
            for _ in range(_MAX_TUNED_LAUNCHES):
                if not isinstance(problem, NeedsTuning):
                    break
                tune_on_scratch(problem)
                problem = self._compile(args, kwargs, facts, record)
        if problem is not None:
            if isinstance(problem, TridentError):
                raise problem
            if isinstance(problem, VALUES_MATTER):
                raise UnsupportedError(*explain_problem(problem)) from problem
            raise TridentError(f"{self.name} cannot be prepared: {problem}") from problem

    def _mends(self, problem: Exception | None, facts: _C.Facts) -> bool:
        """Takes into the state what a capture found missing; whether to capture again."""
        if isinstance(problem, ClosedListError):
            self._lists.reopen(facts)
            return True
        return isinstance(problem, OutsideTensorError) and self._roots.add(problem)

    def _without_grown_lists(
        self, facts: _C.Facts, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> _C.Facts:
        """The facts of a call that is to be compiled, once lists that have grown are left out."""
        if facts.unsupported is None and self._lists.close_grown(facts):
            return _C.collect(self.scm, args, kwargs)
        return facts

    def _compile(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        facts: _C.Facts,
        record: SpecializationRecord,
    ) -> Exception | None:
        """Compiles and publishes a call; returns why it could not be compiled."""
        if facts.unsupported is not None:
            place = self._refused_places.of(facts)
            where = f" ({place})" if place else ""
            return UnsupportedError(f"the call involves {facts.unsupported}{where}")
        if self._recorded_gradients >= _MAX_RECORDED and may_record(facts.tensors):
            return RecordsGradients()
        _thread.capturing = True
        try:
            published = self._attempts.compile(
                args,
                kwargs,
                facts,
                lambda symbolic: compile_call(
                    self.scm, self.name, self.function, args, kwargs, facts, record, symbolic
                ),
            )
        except Exception as problem:
            self._recorded_gradients += isinstance(problem, RecordsGradients)
            logger.info("%s: not captured", self.name, exc_info=True)
            keep_only_place(problem)
            return problem
        finally:
            _thread.capturing = False
            release_trace()
        record.limited = self._attempts.is_limited(facts, published.positions)
        record.fixed = self._attempts.obstacle(facts, published.positions)
        self.records.append(record)
        self._note_eviction(published.evicted)
        log_guards(self.scm, self.name, self.function, record)
        return None

    def _remember_unsupported(
        self, problem: Exception, facts: _C.Facts, record: SpecializationRecord
    ) -> None:
        """Publishes that these facts run eagerly, so that later calls go there at once."""
        if facts.unsupported is not None:  # it has no key
            return
        record.reason, record.where = explain_problem(problem)
        reads = ReadSet()
        if isinstance(problem, UnsupportedError):
            for namespace, name in problem.places:
                reads.add(namespace, name)
        record.reads = reads.items()
        recorded = _C.Reads(record.reads)
        # Where calls keep changing, what is known of some of them has to do for the next ones.
        open_words = self._attempts.note_unsupported(facts)
        evicted = _C.publish(self.scm, facts, None, [], [], [], 0, [], recorded, record, open_words)
        self.records.append(record)
        self._note_eviction(evicted)

    def _note_eviction(self, evicted: SpecializationRecord | None) -> None:
        if evicted is not None:
            evicted.codes, evicted.reads = (), []
            if evicted.reason is None:
                self.warnings.evicted()

    def _count_error(self, facts: _C.Facts, error: Exception, note: str) -> None:
        """An error of the user's own, of a call that ran eagerly as it could not be captured."""
        _C.count(self.scm, "error")
        if note:
            error.add_note(note)
        with _capture_lock:
            if facts.unsupported is None:
                self._raised.add(facts, note)

    def _fall_back(
        self,
        problem: Exception,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        facts: _C.Facts,
        record: SpecializationRecord,
    ) -> Any:
        # A call that could be compiled does not fail because others were.
        changing = isinstance(problem, KeepsChangingError)
        strict = self.options["on_unsupported"] == "raise" and not changing
        if isinstance(problem, (BuildError, HintError)) or (
            strict and isinstance(problem, TridentError)
        ):
            _C.count(self.scm, "error")
            raise problem
        try:
            result = self.function(*args, **kwargs)
        except Exception as error:  # the user's own: eager raises it, so does the optimized call
            unsupported = isinstance(problem, UnsupportedError)
            note = f"trident: the call ran eagerly, because {problem}" if unsupported else ""
            self._count_error(facts, error, note)
            raise
        if strict:
            _C.count(self.scm, "error")
            raise UnsupportedError(*explain_problem(problem)) from problem
        _C.count(self.scm, "fallback")
        with _capture_lock:  # as for all that is remembered of calls
            if not changing:
                self._remember_unsupported(problem, facts, record)
            self.warnings.ran_eagerly(problem)
        return result

    def stats(self) -> dict[str, Any]:
        """Counters since creation; see `trident.optimize`."""
        counters: dict[str, Any] = dict(_C.stats(self.scm))
        entries = _C.entries(self.scm)
        counters["specializations"] = sum(1 for _, _, compiled in entries if compiled)
        counters["driver"] = "cuda" if torch.cuda.is_available() else "cpu"
        return counters


def _name_of(function: Callable[..., Any]) -> str:
    if isinstance(function, torch.nn.Module):
        return type(function).__name__
    return getattr(function, "__qualname__", type(function).__qualname__).replace(".<locals>", "")
