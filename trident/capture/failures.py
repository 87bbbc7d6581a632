"""What a call's Python code has changed when an operator raises because of its tensors' values.

A trace knows no values, so it sees no such error. Eager keeps what was assigned before it; a
program replays its effects once it is done. So before each operator that may raise, the changes
made so far are described as well: a *stage* of the call. The program says which one it has come to.
"""

from __future__ import annotations

import contextlib
import inspect
import types
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
import torch.fx
from torch._ops import OpOverload
from triton.runtime.errors import InterpreterError

from trident.capture.changes import Cloned
from trident.capture.contents import Contents
from trident.capture.handlers import Handler, handlers_around
from trident.capture.library import is_library_file
from trident.capture.shadow import Shadow
from trident.capture.template import Effect, Node, Surroundings, TemplateBuilder
from trident.errors import UnsupportedError
from trident.ir.launch_op import LAUNCH

# On a GPU their kernels check nothing, or end the process's use of it.
_CHECKED_ON_CPU = frozenset(
    """
    index index_put index_put_ _index_put_impl_ index_select index_add index_add_ index_copy
    index_copy_ index_fill index_fill_ index_reduce index_reduce_ gather scatter scatter_
    scatter_add scatter_add_ scatter_reduce scatter_reduce_ take put put_ masked_scatter
    masked_scatter_ embedding _embedding_bag _embedding_bag_forward_only embedding_renorm_
    nll_loss_forward nll_loss2d_forward multi_margin_loss multilabel_margin_loss_forward
    binary_cross_entropy multinomial bernoulli bernoulli_ binomial poisson normal
    _sample_dirichlet _standard_gamma max_unpool2d max_unpool3d _ctc_loss histc
    _histogramdd_bin_edges _histogramdd_from_bin_cts segment_reduce one_hot quantile nanquantile
    fake_quantize_per_channel_affine_cachemask _assert_async
    """.split()
)
# Of integers, by zero.
_DIVISIONS = frozenset(
    "div div_ floor_divide floor_divide_ remainder remainder_ fmod fmod_".split()
)
# The status of a factorization is read on any device.
_CHECKED = frozenset(
    """
    _linalg_check_errors _linalg_eigh linalg_eig _linalg_svd linalg_lstsq cholesky
    cholesky_inverse
    """.split()
)
# What such checks raise; an operator of another library may raise anything.
_ERRORS: tuple[type[Exception], ...] = (IndexError, RuntimeError, torch.linalg.LinAlgError)  # type: ignore[attr-defined]


class Stage(NamedTuple):
    """What a call has changed when it has come to an operator.

    Attributes:
        nodes: a template of the values, over the outputs and numbers of the call's own.
        effects: as the call's.
    """

    nodes: list[Node]
    effects: list[Effect]


class Failures:
    """Describes the stages of a call while it is traced.

    Args:
        shadow: of the call.
        surroundings: what templates of the call name beside its clones.
        entry: code of the frame that enters the user's code.
        ran: the user's code that has run so far.
    """

    def __init__(
        self,
        shadow: Shadow,
        surroundings: Surroundings,
        entry: types.CodeType,
        ran: Callable[[], tuple[types.CodeType, ...]],
    ) -> None:
        self.stages: list[Stage] = []
        self._shadow = shadow
        self._surroundings = surroundings
        self._entry = entry
        self._ran = ran
        self._start: Contents | None = None  # of all clones
        self._changed: list[Cloned] = []
        self._now = Contents()  # of these and of new objects, at the present stage
        self._stage = 0

    def meet(self, node: torch.fx.Node) -> None:
        """Takes note of an operator that is about to run, as ``meta["stage"]`` of its node.

        Raises:
            UnsupportedError: an error would run code behind ``except``, ``finally`` or ``with``, or
                the changes cannot be replayed.
        """
        errors = _errors_of(node)
        if not errors:
            return
        for handler in handlers_around(self._entry):
            if self._goes_on(node, handler, errors):
                reason = f"{node.target} may raise, and the code around it would go on"
                raise UnsupportedError(reason, handler.line)
        self._describe()
        node.meta["stage"] = self._stage

    def _goes_on(
        self, node: torch.fx.Node, handler: Handler, errors: tuple[type[Exception], ...]
    ) -> bool:
        """Whether code would run behind a handler if an operator raised."""
        if node.target is not LAUNCH:
            return handler.catches(errors) or self._runs_code(handler)
        # Launches raise seldom: where libraries look at errors, they raise them again, and most
        # launches stand in some `with`.
        if is_library_file(handler.file):
            return False
        return handler.catches(errors) or (not handler.is_with and self._runs_code(handler))

    def _describe(self) -> None:
        """Makes what has been changed by now the present stage; 0 is that of no changes."""
        if self._start is None:
            self._start = Contents.of_clones(self._shadow.clones)
        changed = self._start.changed()
        if changed == self._changed and not self._now.changed():
            return
        template = TemplateBuilder(self._shadow, self._surroundings)
        effects = template.add_changes(self._shadow.changes(changed))
        self._changed = changed
        self._now = Contents.of_objects([*(each.clone for each in changed), *template.described])
        if effects:
            self.stages.append(Stage(template.nodes, effects))
        self._stage = len(self.stages) if effects else 0

    def _runs_code(self, handler: Handler) -> bool:
        """Whether a handler that catches nothing runs code of the user's."""
        of_library = is_library_file(handler.file) and handler.file != contextlib.__file__
        if handler.types or of_library:
            return False  # a library's own takes care of what the library changed
        return not handler.is_with or any(map(_manages, self._ran()))


def _errors_of(node: torch.fx.Node) -> tuple[type[Exception], ...]:
    """What an operator may raise because of its tensors' values; nothing for most."""
    operator = node.target
    if not isinstance(operator, OpOverload):
        return ()
    if operator is LAUNCH:
        on_cpu = any(each.device.type == "cpu" for each in _tensors(node))
        return (InterpreterError,) if on_cpu else ()
    name = operator._schema.name.partition("::")[2]
    if operator.namespace not in ("aten", "trident"):
        return () if operator.namespace in ("prim", "prims", "profiler") else (Exception,)
    if name in _CHECKED:
        return _ERRORS
    first = next(_tensors(node), None)
    if first is None or first.device.type != "cpu":
        return ()
    if name in _DIVISIONS:
        integers = not any(t.is_floating_point() or t.is_complex() for t in _tensors(node))
        return _ERRORS if integers and (name[:3] != "div" or len(node.kwargs) > 0) else ()
    return _ERRORS if name in _CHECKED_ON_CPU else ()


def _tensors(node: torch.fx.Node) -> Iterator[torch.Tensor]:
    for each in node.all_input_nodes:
        value = each.meta.get("val")
        if isinstance(value, torch.Tensor):
            yield value


def _manages(code: types.CodeType) -> bool:
    """Whether code may be that of a context manager: its exit, or a generator."""
    return code.co_name in ("__enter__", "__exit__") or bool(code.co_flags & inspect.CO_GENERATOR)
