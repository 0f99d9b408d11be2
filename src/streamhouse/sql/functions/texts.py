"""Builds DuckDB expressions for Flink's string and binary functions."""

from __future__ import annotations

import re
from functools import partial

from sqlglot import exp

from streamhouse.sql.functions.builtin_udfs import arrow_call
from streamhouse.sql.functions.expression_builders import (
    Args,
    ArgumentError,
    Build,
    Table,
    bytes_of,
    call,
    cast,
    concat,
    duck,
    literal_text,
    number,
    plain,
    text_of,
    tried,
    when,
)


def _negative(node: exp.Expr) -> exp.Expr:
    return exp.LT(this=exp.Paren(this=node.copy()), expression=number(0))


def _end(name: str) -> Build:
    """LEFT or RIGHT; a negative length gives the empty text."""

    def build(args: Args) -> exp.Expr:
        length = when(_negative(args[1]), number(0), args[1])
        return cast(call(name, args[0], length), "VARCHAR")

    return build


def _pad(name: str) -> Build:
    """LPAD or RPAD; null for a negative length and for an empty padding text."""

    def build(args: Args) -> exp.Expr:
        empty = exp.EQ(this=args[2].copy(), expression=exp.Literal.string(""))
        no_result = exp.or_(_negative(args[1]), empty)
        return cast(when(no_result, exp.Null(), call(name, *args)), "VARCHAR")

    return build


def _chr(args: Args) -> exp.Expr:
    """CHR: the character with the code of the lowest byte; empty for a negative number."""
    code = exp.BitwiseAnd(this=cast(args[0], "BIGINT"), expression=number(255))
    char = call("CHR", cast(exp.Paren(this=code), "INTEGER"))
    return cast(when(_negative(args[0]), exp.Literal.string(""), char), "VARCHAR")


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


def _instr(args: Args) -> exp.Expr:
    if len(args) == 2:
        return cast(call("INSTR", *args), "INT")
    return arrow_call("instr", *args, *([number(1)] if len(args) == 3 else []))


def _locate(args: Args) -> exp.Expr:
    """LOCATE(part, text[, start]); it starts at 1 for 0, and finds nothing for less."""
    if len(args) == 2:
        return _instr([args[1], args[0]])
    start = args[2]
    zero = exp.EQ(this=exp.Paren(this=start.copy()), expression=number(0))
    found = _instr([args[1], args[0], when(zero, number(1), start.copy())])
    return cast(when(_negative(start), number(0), found), "INT")


def _replace(args: Args) -> exp.Expr:
    """REPLACE; for an empty text the new one is put around each character."""
    native = call("REPLACE", *args)
    if isinstance(args[1], exp.Literal) and args[1].name:
        return cast(native, "VARCHAR")
    is_empty = exp.EQ(this=args[1].copy(), expression=exp.Literal.string(""))
    around = arrow_call("replace", *(arg.copy() for arg in args))
    return cast(when(is_empty, around, native), "VARCHAR")


def _regexp(args: Args) -> exp.Expr:
    """REGEXP; false for an empty pattern."""
    matches = call("REGEXP_MATCHES", *args)
    if isinstance(args[1], exp.Literal) and args[1].name:
        return cast(matches, "BOOLEAN")
    not_empty = exp.NEQ(this=args[1].copy(), expression=exp.Literal.string(""))
    return cast(exp.Paren(this=exp.And(this=matches, expression=not_empty)), "BOOLEAN")


def _overlay(args: Args) -> exp.Expr:
    """OVERLAY(text PLACING new FROM start FOR length).

    With a length of 0 or less the rest of the text is dropped. With a start outside of the text,
    the text stays as it is.
    """
    text, new, start = args[:3]
    length = args[3] if len(args) > 3 else call("LENGTH", new.copy())
    before = call("LEFT", text.copy(), exp.Sub(this=exp.Paren(this=start.copy()),
                                               expression=number(1)))  # fmt: skip
    after = exp.Add(this=exp.Paren(this=start.copy()), expression=exp.Paren(this=length))
    positive = exp.GT(this=exp.Paren(this=length.copy()), expression=number(0))
    rest = when(positive, exp.Substring(this=text.copy(), start=after), exp.Literal.string(""))
    whole = concat(before, new, rest)
    outside = exp.or_(
        exp.LT(this=exp.Paren(this=start.copy()), expression=number(1)),
        exp.GT(this=exp.Paren(this=start.copy()), expression=call("LENGTH", text.copy())),
    )
    return cast(when(outside, text, whole), "VARCHAR")


def _regexp_extract(args: Args) -> exp.Expr:
    group = args[2] if len(args) > 2 else number(0)
    if isinstance(group, exp.Neg):
        return when(exp.false(), cast(args[0], "VARCHAR"))
    extracted = cast(call("REGEXP_EXTRACT", args[0], args[1], group), "VARCHAR")
    matches = call("REGEXP_MATCHES", args[0].copy(), args[1].copy())
    if group.name != "0":
        # Only Python's expressions tell an empty group from one that has not matched.
        is_empty = exp.EQ(this=extracted, expression=exp.Literal.string(""))
        group_text = arrow_call("regexp_group", *(arg.copy() for arg in (*args[:2], group)))
        extracted = cast(when(is_empty, group_text, extracted.copy()), "VARCHAR")
    return when(matches, extracted)


def _all_matches(*args: exp.Expr) -> exp.Expr:
    return tried(partial(call, "REGEXP_EXTRACT_ALL"), *args)


def _regexp_extract_all(args: Args) -> exp.Expr:
    return cast(_all_matches(*(args if args[2:] else [*args, number(1)])), "VARCHAR[]")


def _regexp_substr(args: Args) -> exp.Expr:
    return cast(tried(lambda *given: _regexp_extract(list(given)), *args), "VARCHAR")


def _regexp_instr(args: Args) -> exp.Expr:
    """REGEXP_INSTR: the position of the first match, from 1; 0 if there is none."""
    return cast(tried(_first_match, *args), "INT")


def _first_match(text: exp.Expr, pattern: exp.Expr) -> exp.Expr:
    shortest = concat(exp.Literal.string("(?s)^(.*?)(?:"), pattern, exp.Literal.string(")"))
    before = call("REGEXP_EXTRACT", text, shortest, number(1))
    position = exp.Add(this=call("LENGTH", before), expression=number(1))
    matches = call("REGEXP_MATCHES", text.copy(), pattern.copy())
    return exp.Case(ifs=[
        exp.If(this=matches, true=position),
        exp.If(this=exp.Not(this=matches.copy()), true=number(0)),
    ])  # fmt: skip


def _regexp_replace(args: Args) -> exp.Expr:
    new = args[2]
    if not (isinstance(new, exp.Literal) and new.is_string) or "\\" in new.name:
        return arrow_call("regexp_replace", *args)
    return cast(call("REGEXP_REPLACE", *args, exp.Literal.string("g")), "VARCHAR")


def _all_of(pattern: str) -> Build:
    """A builder of the test whether the pattern matches the whole text; false for null."""

    def build(args: Args) -> exp.Expr:
        whole = call("REGEXP_FULL_MATCH", args[0], exp.Literal.string(pattern))
        return exp.Coalesce(this=cast(whole, "BOOLEAN"), expressions=[exp.false()])

    return build


def _sha(name: str) -> Build:
    return lambda args: arrow_call(name, bytes_of(args[0]))


def _sha256(args: Args) -> exp.Expr:
    return cast(call("SHA256", bytes_of(args[0])), "VARCHAR")


_SHA2: dict[str, Build] = {
    "224": _sha("sha224"), "256": _sha256, "384": _sha("sha384"), "512": _sha("sha512"),
}  # fmt: skip


def _sha2(args: Args) -> exp.Expr:
    """SHA2(x, length); another length than `_SHA2` has gives null, a literal one an error."""
    value, length = args
    if isinstance(length, exp.Literal):
        if length.name not in _SHA2:
            raise ArgumentError(f"SHA2 takes a length of {', '.join(_SHA2)}, not {length.name}")
        return _SHA2[length.name]([value])
    cases = [
        exp.If(this=exp.EQ(this=length.copy(), expression=number(int(one))),
               true=build([value.copy()]))
        for one, build in _SHA2.items()
    ]  # fmt: skip
    return cast(exp.Case(ifs=cases), "VARCHAR")


def _elt(args: Args) -> exp.Expr:
    """ELT(n, a, b, …): the nth value, from 1; null for an `n` out of range."""
    cases = [
        exp.If(this=exp.EQ(this=args[0].copy(), expression=number(index)), true=value)
        for index, value in enumerate(args[1:], 1)
    ]
    return exp.Case(ifs=cases)


def _parse_url(args: Args) -> exp.Expr:
    return arrow_call("parse_url", *args, *([exp.Null()] if len(args) == 2 else []))


def _str_to_map(args: Args) -> exp.Expr:
    defaults = [exp.Literal.string(default) for default in (",", "=")]
    return arrow_call("map_of", *args, *defaults[len(args) - 1 :])


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
        computed = concat(exp.Literal.string("(?s)"), exp.Paren(this=node.expression))
        for old, new in (("_", "."), ("%", ".*")):
            computed = call("REPLACE", computed, exp.Literal.string(old), exp.Literal.string(new))
        return cast(call("REGEXP_FULL_MATCH", node.this, computed), "BOOLEAN")
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


def _texts(name: str) -> Build:
    return duck(name, "VARCHAR")


def _arrow(name: str) -> Build:
    return lambda args: arrow_call(name, *args)


def _blob(name: str) -> Build:
    """A builder of an Arrow function call whose first argument is bytes, or a text as bytes."""
    return lambda args: arrow_call(name, bytes_of(args[0]), *args[1:])


def in_case(node: exp.Lower | exp.Upper, is_repeatable: bool) -> exp.Expr:
    """UPPER or LOWER as Java's, which maps some characters to several: `ß` to `SS`."""
    name = "upper" if isinstance(node, exp.Upper) else "lower"
    if not is_repeatable:
        return arrow_call(name, node.this)
    return _of_ascii(name, node.this, node.copy())


def _of_ascii(name: str, text: exp.Expr, native: exp.Expr) -> exp.Expr:
    """`native`, DuckDB's function, for a text in ASCII; the Python function for any other."""
    is_ascii = exp.EQ(this=call("STRLEN", text.copy()), expression=call("LENGTH", text.copy()))
    return cast(when(is_ascii, native, arrow_call(name, text.copy())), "VARCHAR")


def _trim(name: str) -> Build:
    """A builder of a call that trims characters: by default spaces, not DuckDB's white space."""
    return lambda args: cast(call(name, args[0], *(args[1:] or [_SPACE.copy()])), "VARCHAR")


_SPACE = exp.Literal.string(" ")


TABLE: Table = {
    "UPPER": (1, 1, plain(exp.Upper)),
    "LOWER": (1, 1, plain(exp.Lower)),
    "LTRIM": (1, 2, _trim("LTRIM")),
    "RTRIM": (1, 2, _trim("RTRIM")),
    "BTRIM": (1, 2, _trim("TRIM")),
    "SUBSTR": (2, 3, plain(exp.Substring, "this", "start", "length")),
    "CHAR_LENGTH": (1, 1, duck("LENGTH", "INT")),
    "CHARACTER_LENGTH": (1, 1, duck("LENGTH", "INT")),
    "CONCAT": (1, None, lambda args: exp.Paren(this=concat(*map(text_of, args)))),
    "CONCAT_WS": (
        2,
        None,
        lambda args: cast(call("CONCAT_WS", *map(text_of, args)), "VARCHAR"),
    ),
    "REPLACE": (3, 3, _replace),
    "REVERSE": (1, 1, lambda args: _of_ascii("reverse", args[0], call("REVERSE", args[0]))),
    "REPEAT": (2, 2, _texts("REPEAT")),
    "LEFT": (2, 2, _end("LEFT")),
    "RIGHT": (2, 2, _end("RIGHT")),
    "LPAD": (3, 3, _pad("LPAD")),
    "RPAD": (3, 3, _pad("RPAD")),
    "INSTR": (2, 4, _instr),
    "LOCATE": (2, 3, _locate),
    "ASCII": (1, 1, duck("ASCII", "INT")),
    "CHR": (1, 1, _chr),
    "INITCAP": (1, 1, _arrow("initcap")),
    "OVERLAY": (3, 4, _overlay),
    "ELT": (2, None, _elt),
    "PRINTF": (1, None, _texts("PRINTF")),
    "HASH_CODE": (1, 1, _arrow("hash_code")),
    "MD5": (1, 1, _texts("MD5")),
    "SHA1": (1, 1, _texts("SHA1")),
    "SHA224": (1, 1, _sha("sha224")),
    "SHA256": (1, 1, _sha256),
    "SHA384": (1, 1, _sha("sha384")),
    "SHA512": (1, 1, _sha("sha512")),
    "SHA2": (2, 2, _sha2),
    "HEX": (1, 1, _texts("HEX")),
    "UNHEX": (1, 1, _arrow("unhex")),
    "TO_BASE64": (1, 1, _blob("base64")),
    "FROM_BASE64": (1, 1, _blob("from_base64")),
    "ENCODE": (2, 2, _arrow("encode")),
    "DECODE": (2, 2, lambda args: arrow_call("decode", bytes_of(args[0]), args[1])),
    "URL_ENCODE": (1, 1, _arrow("url_encode")),
    "URL_DECODE": (1, 1, _arrow("url_decode")),
    "PARSE_URL": (2, 3, _parse_url),
    "STR_TO_MAP": (1, 3, _str_to_map),
    "TRANSLATE": (3, 3, _texts("TRANSLATE")),
    "IS_ALPHA": (1, 1, _all_of("\\p{L}+")),
    "IS_DIGIT": (1, 1, _all_of("\\p{Nd}+")),
    "IS_DECIMAL": (1, 1, _all_of("[+-]?([0-9]+[.]?[0-9]*|[.][0-9]+)")),
    "STARTSWITH": (2, 2, duck("STARTS_WITH", "BOOLEAN")),
    "ENDSWITH": (2, 2, duck("ENDS_WITH", "BOOLEAN")),
    "SPLIT_INDEX": (3, 3, _split_index),
    "REGEXP": (2, 2, _regexp),
    "REGEXP_COUNT": (2, 2, lambda args: cast(call("LEN", _all_matches(*args)), "INT")),
    "REGEXP_EXTRACT": (2, 3, _regexp_extract),
    "REGEXP_EXTRACT_ALL": (2, 3, _regexp_extract_all),
    "REGEXP_INSTR": (2, 2, _regexp_instr),
    "REGEXP_REPLACE": (3, 3, _regexp_replace),
    "REGEXP_SUBSTR": (2, 2, _regexp_substr),
}
