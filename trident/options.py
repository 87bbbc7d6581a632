"""The options of `trident.optimize`, and which values of them are supported."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias, TypedDict

from trident.dim import Hint

Dynamic: TypeAlias = Literal["auto"] | bool | Mapping[str, Hint]
OnUnsupported = Literal["eager", "raise"]


class Options(TypedDict, total=False):
    """Keyword arguments of `trident.optimize`, described there; any may be left out."""

    dynamic: Dynamic
    graphs: Literal["auto"] | bool
    on_unsupported: OnUnsupported
    max_specializations: int


def check_options(options: Options) -> None:
    """Refuses what is not supported; all options must be there.

    Raises:
        TypeError: ``max_specializations`` is not an int.
        ValueError: an option has a value that is not supported.
    """
    dynamic, graphs = options["dynamic"], options["graphs"]
    if dynamic != "auto" and not isinstance(dynamic, (bool, Mapping)):
        raise ValueError(
            f'dynamic={dynamic!r}: use "auto", True, False, or a dictionary of hints by argument'
        )
    if graphs != "auto" and not isinstance(graphs, bool):
        raise ValueError(f'graphs={graphs!r}: use "auto", True or False')
    if options["on_unsupported"] not in ("eager", "raise"):
        raise ValueError(f'on_unsupported={options["on_unsupported"]!r}: use "eager" or "raise"')
    limit = options["max_specializations"]
    if not isinstance(limit, int) or isinstance(limit, bool):
        raise TypeError(f"max_specializations={limit!r}: use an int")
    if limit < 1:
        raise ValueError(f"max_specializations={limit}: at least 1 is needed")
