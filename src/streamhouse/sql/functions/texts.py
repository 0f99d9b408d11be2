"""Builds DuckDB expressions for Flink's string and binary functions."""

import re
from collections.abc import Iterable

from sqlglot import exp

from streamhouse.sql.functions import macros
from streamhouse.sql.functions.builtin_udfs import arrow_call
from streamhouse.sql.functions.expression_builders import (
    Args,
    ArgumentError,
    Table,
    call,
    cast,
    concat,
    literal_text,
    number,
    text_of,
    when,
)
from streamhouse.sql.functions.macros import filled


def _split_index(args: Args) -> exp.Expr:
    """SPLIT_INDEX: a part by its index from 0; the separator may be a character code."""
    text, separator, index = args
    if isinstance(separator, exp.Literal) and not separator.is_string:
        return arrow_call("split_code", text, separator, index)
    is_literal = isinstance(separator, exp.Literal) and separator.name
    if is_literal and isinstance(index, exp.Literal) and index.name.isdigit():
        split = call("STRING_SPLIT", cast(text, "VARCHAR"), separator)
        return cast(call("LIST_EXTRACT", split, number(int(index.name) + 1)), "VARCHAR")
    return arrow_call("split_index", text, separator, index)


def _replace(args: Args) -> exp.Expr:
    """REPLACE; for an empty text the new one is put around each character."""
    native = call("REPLACE", *args)
    if isinstance(args[1], exp.Literal) and args[1].name:
        return cast(native, "VARCHAR")
    around = arrow_call("replace", *(arg.copy() for arg in args))
    return filled(
        "CASE WHEN old = '' THEN around ELSE native END::VARCHAR",
        old=args[1].copy(), around=around, native=native,
    )  # fmt: skip


def _regexp_extract(args: Args) -> exp.Expr:
    group = args[2] if len(args) > 2 else number(0)
    if isinstance(group, exp.Neg):
        return when(exp.false(), cast(args[0], "VARCHAR"))
    extracted: exp.Expr = cast(call("REGEXP_EXTRACT", args[0], args[1], group), "VARCHAR")
    if group.name != "0":
        # Only Python's expressions tell an empty group from one that has not matched.
        extracted = filled(
            "CASE WHEN extracted = '' THEN exact ELSE extracted END::VARCHAR",
            extracted=extracted,
            exact=arrow_call("regexp_group", *(arg.copy() for arg in (*args[:2], group))),
        )
    return when(call("REGEXP_MATCHES", args[0].copy(), args[1].copy()), extracted)


def _regexp_replace(args: Args) -> exp.Expr:
    new = args[2]
    if not (isinstance(new, exp.Literal) and new.is_string) or "\\" in new.name:
        return arrow_call("regexp_replace", *args)
    return cast(call("REGEXP_REPLACE", *args, exp.Literal.string("g")), "VARCHAR")


_SHA2 = {length: macros.TABLE[f"SHA{length}"][2] for length in ("224", "256", "384", "512")}


def _sha2(args: Args) -> exp.Expr:
    """SHA2(x, length); another length than `_SHA2` has gives null, a literal one an error."""
    value, length = args
    if isinstance(length, exp.Literal):
        if length.name not in _SHA2:
            raise ArgumentError(f"SHA2 takes a length of {', '.join(_SHA2)}, not {length.name}")
        return _SHA2[length.name]([value])
    cases = ((int(one), build([value.copy()])) for one, build in _SHA2.items())
    return cast(_by_number(length, cases), "VARCHAR")


def _by_number(given: exp.Expr, values: Iterable[tuple[int, exp.Expr]]) -> exp.Expr:
    """The value of a number; null for a number that none has."""
    ifs = [
        exp.If(this=exp.EQ(this=given.copy(), expression=number(one)), true=value)
        for one, value in values
    ]
    return exp.Case(ifs=ifs)


def of_code_points(text: str, escape: str) -> exp.Expr:
    """U&'…' [UESCAPE '…']: characters by code, such as \\263A; a doubled escape is itself."""
    escaped = re.escape(escape)

    def char(match: re.Match[str]) -> str:
        if match[1] is None and match[0] != 2 * escape:
            raise ArgumentError(f"a '{escape}' in U&'…' needs four hexadecimal digits after it")
        return chr(int(match[1], 16)) if match[1] else escape

    return exp.Literal.string(re.sub(f"{escaped}(?:([0-9A-Fa-f]{{4}})|{escaped})?", char, text))


def similar(node: exp.SimilarTo, escape: str = "") -> exp.Expr:
    """SIMILAR TO as a regular expression match; `_` is any character, `%` any text."""
    if not escape and not isinstance(node.expression, exp.Literal):
        return filled(
            "REGEXP_FULL_MATCH(value, REPLACE(REPLACE('(?s)' || (form), '_', '.'), '%', '.*'))"
            "::BOOLEAN",
            value=node.this, form=node.expression,
        )  # fmt: skip
    text = literal_text(node.expression, "the pattern of SIMILAR TO with ESCAPE")
    regex, quoted = "", False
    for char in text:
        if quoted:
            regex, quoted = regex + re.escape(char), False
        elif escape and char == escape:
            quoted = True
        else:
            regex += {"_": ".", "%": ".*"}.get(char, char)
    pattern = exp.Literal.string(f"(?s){regex}")
    return cast(call("REGEXP_FULL_MATCH", node.this, pattern), "BOOLEAN")


def in_case(node: exp.Lower | exp.Upper, is_repeatable: bool) -> exp.Expr:
    """UPPER or LOWER as Java's, which maps some characters to several: `ß` to `SS`."""
    java = arrow_call("upper" if isinstance(node, exp.Upper) else "lower", node.this.copy())
    if not is_repeatable:
        return java
    # DuckDB's own function is Java's for a text in ASCII.
    return filled(
        "CASE WHEN STRLEN(value) = LENGTH(value) THEN native ELSE java END::VARCHAR",
        value=node.this.copy(), native=node.copy(), java=java,
    )  # fmt: skip


TABLE: Table = {
    "CONCAT": (1, None, lambda args: exp.Paren(this=concat(*map(text_of, args)))),
    "CONCAT_WS": (2, None, lambda args: cast(call("CONCAT_WS", *map(text_of, args)), "VARCHAR")),
    "REPLACE": (3, 3, _replace),
    "ELT": (2, None, lambda args: _by_number(args[0], enumerate(args[1:], 1))),
    "PRINTF": (1, None, lambda args: cast(call("PRINTF", *args), "VARCHAR")),
    "SHA2": (2, 2, _sha2),
    "SPLIT_INDEX": (3, 3, _split_index),
    "REGEXP_EXTRACT": (2, 3, _regexp_extract),
    "REGEXP_REPLACE": (3, 3, _regexp_replace),
}
