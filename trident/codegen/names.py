"""C++ identifiers and literals."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

from trident.ir.expressions import SYMBOL

_KEYWORDS = frozenset(
    """alignas alignof and and_eq asm auto bitand bitor bool break case catch char class compl const
    constexpr const_cast continue decltype default delete do double dynamic_cast else enum explicit
    export extern false float for friend goto if inline int long mutable namespace new noexcept not
    not_eq nullptr operator or or_eq private protected public register reinterpret_cast return short
    signed sizeof static static_assert static_cast struct switch template this thread_local throw
    true try typedef typeid typename union unsigned using virtual void volatile wchar_t while xor
    xor_eq""".split()
)

# Macros of the headers that a unit includes.
_MACRO = re.compile(r"[A-Z][A-Z0-9_]*_(C|MAX|MIN|WIDTH)|TRIDENT_[A-Z_]+")

_LINE_LENGTH = 100


def identifier(text: str) -> str:
    """``text`` as an identifier: ``model.layers.0.weight`` becomes ``model_layers_0_weight``.

    It is no word of C++, and not spelled like a symbol.
    """
    made = re.sub(r"[^0-9A-Za-z]+", "_", text).strip("_") or "value"
    if made[0].isdigit():
        made = f"at_{made}"
    taken = made in _KEYWORDS or _MACRO.fullmatch(made) or SYMBOL.fullmatch(made)
    return f"{made}_" if taken else made


class Names:
    """Identifiers that are unique within one scope, and none of ``reserved``."""

    def __init__(self, reserved: Iterable[str] = ()) -> None:
        self._used: dict[str, int] = dict.fromkeys(reserved, 1)

    def unique(self, text: str) -> str:
        """An identifier for ``text``; a number is appended to one that was given before."""
        base = identifier(text)
        made = base
        while made in self._used:
            self._used[base] += 1
            made = f"{base}_{self._used[base]}"
        self._used[made] = 1
        return made


def string(text: str) -> str:
    """A C string literal. Bytes beyond printable ASCII are written in octal."""
    written = []
    for byte in text.encode():
        character = chr(byte)
        if character in '"\\':
            written.append("\\" + character)
        elif 32 <= byte < 127 and character != "?":
            written.append(character)
        else:
            written.append(f"\\{byte:03o}")
    return '"' + "".join(written) + '"'


def comment(text: str) -> str:
    """``text`` made safe for the rest of a line after ``//``."""
    return re.sub(r"[\x00-\x1f\x7f]+", " ", text).rstrip("\\ ")


def wrap(line: str, indent: int) -> str:
    """An indented statement, broken after commas where it is longer than a line."""
    depth = indent + len(line) - len(line.lstrip())
    words = line.strip().split(", ") if '"' not in line and "//" not in line else [line.strip()]
    lines = [" " * depth + words[0]] if line.strip() else [""]
    for word in words[1:]:
        if len(lines[-1]) + len(word) + 3 > _LINE_LENGTH:
            lines[-1] += ","
            lines.append(" " * (depth + 4) + word)
        else:
            lines[-1] += f", {word}"
    return "\n".join(lines)


def integer(value: int) -> str:
    """An int64_t literal."""
    if value == -(2**63):
        return "INT64_MIN"
    if value == 2**63 - 1:
        return "INT64_MAX"
    return str(value) if -(2**31) < value < 2**31 else f"INT64_C({value})"


def floating(value: float) -> str:
    """A double literal that reads back as exactly ``value``."""
    if math.isnan(value):
        return '-__builtin_nan("")' if math.copysign(1.0, value) < 0 else '__builtin_nan("")'
    if math.isinf(value):
        return "__builtin_inf()" if value > 0 else "-__builtin_inf()"
    return repr(value)


def suffix(values: list[int] | list[float]) -> str:
    """The part of an identifier that spells a list of numbers: ``1_m1_64``."""
    texts = [repr(value) if isinstance(value, float) else str(value) for value in values]
    joined = "_".join(texts).replace("-", "m").replace("+", "")
    return re.sub(r"[^0-9A-Za-z_]", "p", joined)
