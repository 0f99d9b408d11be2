"""Converts between Flink and DuckDB types, and decides which assignments need no CAST."""

import re
from collections.abc import Callable
from typing import Any

from duckdb.sqltypes import DuckDBPyType
from sqlglot import exp

from streamhouse.types import ATOMIC, STORED_AS

_NAMES = {flink: duck for flink, duck, _ in ATOMIC} | {
    "TIME": "TIME",
    "TIMESTAMP_LTZ": "TIMESTAMPTZ",
}
_NAMES |= {flink: _NAMES[other] for flink, other in STORED_AS.items()}
_FLINK = {duck.lower(): flink for flink, duck, _ in ATOMIC} | {
    "hugeint": "DECIMAL(38, 0)",
    "time": "TIME(6)",
    "timestamp": "TIMESTAMP(6)",
    "timestamp_s": "TIMESTAMP(0)",
    "timestamp_ms": "TIMESTAMP(3)",
    "timestamp_ns": "TIMESTAMP(9)",
    "timestamp with time zone": "TIMESTAMP_LTZ(6)",
}
INTEGER_DIGITS = {"TINYINT": 3, "SMALLINT": 5, "INT": 10, "BIGINT": 19}
"""The decimal digits of the integer types, from the narrowest to the widest."""
_EXACT_DIGITS = {"FLOAT": 6, "DOUBLE": 15}
"""Decimal digits that a floating-point number always keeps."""
_TEXTS = ("STRING", "VARCHAR", "CHAR")
_BINARIES = ("BYTES", "BINARY", "VARBINARY")
_TIMESTAMPS = ("DATE", "TIMESTAMP", "TIMESTAMP_LTZ")


def _split(inner: str) -> list[str]:
    """The parts of a comma-separated list; commas within brackets or quotes do not separate."""
    parts, depth, start, quoted = [], 0, 0, False
    for index, char in enumerate(inner):
        quoted ^= char == "`"
        if not quoted:
            depth += (char in "<(") - (char in ">)")
            if char == "," and depth == 0:
                parts.append(inner[start:index].strip())
                start = index + 1
    return [*parts, inner[start:].strip()]


def base(flink: str) -> str:
    """The type's first word: DECIMAL of `DECIMAL(10, 2) NOT NULL`."""
    word = flink.strip().upper()
    for mark in "(< ":
        word = word.split(mark, 1)[0]
    return word


def _inner(flink: str) -> str:
    opening = min(place for place in (flink.find("<"), flink.find("(")) if place >= 0)
    closing = max(flink.rfind(">"), flink.rfind(")"))
    return flink[opening + 1 : closing]


def digits(flink: str, default: int = 6) -> int:
    """The first number in parentheses: 3 of `TIMESTAMP(3)`, 10 of `DECIMAL(10, 2)`."""
    return int(_inner(flink).split(",")[0]) if "(" in flink else default


def scale(flink: str) -> int:
    """The number of digits after the decimal point of a DECIMAL."""
    parts = _inner(flink).split(",") if "(" in flink else []
    return int(parts[1]) if len(parts) > 1 else 0


def number_digits(flink: str) -> tuple[int, int]:
    """The digits before and after the decimal point of a DECIMAL or an integer type."""
    whole = INTEGER_DIGITS.get(base(flink))
    return (digits(flink, 10) - scale(flink), scale(flink)) if whole is None else (whole, 0)


_QUOTED = re.compile(r"`((?:[^`]|``)*)`")


def _field(text: str) -> tuple[str, str]:
    """(name, type) of one field of a ROW."""
    quoted = _QUOTED.match(text)
    if quoted is not None:
        return quoted[1].replace("``", "`"), text[quoted.end() :].strip()
    name, kind = text.split(None, 1)
    return name, kind


def parts(flink: str) -> list[tuple[str, str]]:
    """Names and types of what a nested type consists of; empty for other types.

    An ARRAY or MULTISET has an element, a MAP a key and a value, a ROW its fields.
    """
    word = base(flink)
    if word in ("ARRAY", "MULTISET"):
        return [("element", _inner(flink))]
    if word == "MAP":
        key, value = _split(_inner(flink))
        return [("key", key), ("value", value)]
    return [_field(part) for part in _split(_inner(flink))] if word == "ROW" else []


def data_type(flink: str, leaf: Callable[[str], exp.DataType]) -> exp.DataType:
    """A type as a tree of sqlglot's; `leaf` makes the types that are not nested."""
    word, inner = base(flink), [(name, data_type(kind, leaf)) for name, kind in parts(flink)]
    if word == "ROW":
        fields = [exp.ColumnDef(this=exp.to_identifier(name), kind=kind) for name, kind in inner]
        return exp.DataType(this=exp.DType.STRUCT, expressions=fields, nested=True)
    if not inner:
        return leaf(flink)
    nested = exp.DType.ARRAY if word == "ARRAY" else exp.DType.MAP
    return exp.DataType(this=nested, expressions=[kind for _, kind in inner], nested=True)


def duck_type(flink: str) -> str:
    """DuckDB's type for a Flink type, in DuckDB's spelling; `ValueError` for an unknown type."""
    word = base(flink)
    if word in _NAMES:
        return _NAMES[word]
    if word == "DECIMAL":
        return f"DECIMAL({_inner(flink)})" if "(" in flink else "DECIMAL(10, 0)"
    if word == "TIMESTAMP":
        if "LOCAL" in flink.upper():
            return "TIMESTAMPTZ"
        size = digits(flink)
        return "TIMESTAMP_MS" if size <= 3 else "TIMESTAMP" if size <= 6 else "TIMESTAMP_NS"
    inner = [(name, duck_type(kind)) for name, kind in parts(flink)]
    if word == "ARRAY":
        return f"{inner[0][1]}[]"
    if word == "MAP":
        return f"MAP({inner[0][1]}, {inner[1][1]})"
    if word == "ROW":
        return f"STRUCT({', '.join(f'{_double_quoted(name)} {kind}' for name, kind in inner)})"
    raise ValueError(f"type {flink} is unknown")


def _double_quoted(name: str) -> str:
    doubled = name.replace('"', '""')
    return f'"{doubled}"'


def _backticks(name: str) -> str:
    doubled = name.replace("`", "``")
    return f"`{doubled}`"


NULL = "NULL"
"""The type of a column of NULL literals only: it fits every other type."""


def column_type(duck: DuckDBPyType) -> str:
    """The type of a query's column as `flink_type` gives it; `NULL` for NULL literals only."""
    return NULL if duck.id == "null" else flink_type(duck)


def flink_type(duck: DuckDBPyType) -> str:
    """Flink's type for a DuckDB type; raises `ValueError` if there is none."""
    kind = duck.id
    if kind in _FLINK:
        return _FLINK[kind]
    if kind == "null":
        return "STRING"
    nested = kind in ("decimal", "list", "map", "struct")
    children: dict[str, Any] = dict(duck.children) if nested else {}
    if kind == "decimal":
        return f"DECIMAL({children['precision']}, {children['scale']})"
    if kind == "list":
        return f"ARRAY<{flink_type(children['child'])}>"
    if kind == "map":
        return f"MAP<{flink_type(children['key'])}, {flink_type(children['value'])}>"
    if kind == "tuple":
        # The type of ROW(…): its fields have no names.
        children = {f"EXPR${n}": part for n, (_, part) in enumerate(duck.children)}
    if kind in ("struct", "tuple"):
        fields = (f"{_backticks(n)} {flink_type(t)}" for n, t in children.items())
        return f"ROW<{', '.join(fields)}>"
    raise ValueError(f"a value of type {duck} cannot be an output column")


def fits(source: str, target: str) -> bool:
    """Whether a value of Flink type `source` fits a column of `target` without a CAST.

    Integers may go into narrower integer types, and floating-point numbers into DECIMAL, which
    rounds them. A value that is too large for the column fails at run time.
    """
    one, two = base(source), base(target)
    if one == NULL:
        return True
    for family in (_TEXTS, _BINARIES, _TIMESTAMPS):
        if one in family:
            return two in family
    if one in INTEGER_DIGITS:
        return two in (*INTEGER_DIGITS, "DECIMAL", "FLOAT", "DOUBLE")
    if one == "DECIMAL":
        return two in ("DECIMAL", "FLOAT", "DOUBLE")
    if one in ("FLOAT", "DOUBLE"):
        return two in (one, "DOUBLE", "DECIMAL")
    if one in ("ARRAY", "MAP", "ROW") and one == two:
        pairs = [tuple(kind for _, kind in parts(each)) for each in (source, target)]
        return len(pairs[0]) == len(pairs[1]) and all(map(fits, *pairs))
    return one == two


def keeps_order(source: str, target: str) -> bool:
    """Whether distinct values of Flink type `source` stay distinct in a column of `target`.

    They then keep their order, too. `source` is one that `fits`; a value that is too large for the
    column is an error, so only fractions and digits can be lost.
    """
    one, two = base(source), base(target)
    if one in _TIMESTAMPS:
        return one == "DATE" or (two != "DATE" and digits(source) <= digits(target))
    if two == "DECIMAL":
        return one in INTEGER_DIGITS or (one == "DECIMAL" and scale(source) <= scale(target))
    if two in _EXACT_DIGITS and one != two:
        exact = _EXACT_DIGITS[two]
        if one == "DECIMAL":
            return digits(source, 10) <= exact
        return one == "FLOAT" or INTEGER_DIGITS.get(one, 0) <= exact
    return True


def stored_type(kind: str) -> str:
    """The type of a stored column for the type of a query's column."""
    if kind == NULL:
        return "STRING"
    return "TIME(3)" if kind == "TIME(6)" else kind
