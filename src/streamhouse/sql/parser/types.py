"""Parses types as users write them, to Flink's spelling in upper case.

The parser of queries calls it for casts, that of statements for columns.
"""

from sqlglot.tokenizer_core import TokenType

from streamhouse.sql.parser.token_cursor import ADVICE, Cursor
from streamhouse.sql.text import ticked
from streamhouse.types import ATOMIC

_PLAIN = {flink: flink for flink, _, _ in ATOMIC} | {"INTEGER": "INT", "REAL": "FLOAT"}
_GREATEST = ("VARCHAR", "VARBINARY")
"""Types whose default size is the greatest; others have that of `_DEFAULTS`, or the least."""
_DEFAULTS = {"TIMESTAMP": 6, "TIMESTAMP_LTZ": 6}
_SIZES = {
    **dict.fromkeys(("CHAR", "VARCHAR", "BINARY", "VARBINARY"), (1, 2147483647)),
    **dict.fromkeys(("TIME", "TIMESTAMP", "TIMESTAMP_LTZ"), (0, 9)),
}
"""The least and the greatest size of types that have one."""
_NESTED = ("ARRAY", "MAP", "MULTISET", "ROW")
_TYPES = (*_PLAIN, *_SIZES, "DECIMAL", "NUMERIC", "DEC", *_NESTED)


def parse_type(cursor: Cursor) -> str:
    """Parse a type; returns Flink's upper-case spelling, without NOT NULL at the top level."""
    start = cursor.offset
    kind = _type(cursor)
    if "MULTISET<" in kind:
        cursor.unsupported(_unsupported("MULTISET"), start)
    return kind


def parse_element(cursor: Cursor) -> str:
    """As `parse_type`, with NOT NULL; also MULTISET, which tables of other writers have."""
    kind = _type(cursor)
    if cursor.accept("NOT", "NULL"):
        return f"{kind} NOT NULL"
    cursor.accept("NULL")
    return kind


def _type(cursor: Cursor) -> str:
    kind = _prefix(cursor)
    while True:
        if cursor.at("MULTISET"):
            cursor.unsupported(_unsupported("MULTISET"))
        if cursor.accept("ARRAY"):
            kind = f"ARRAY<{kind}>"
        elif cursor.accept("NOT", "NULL", "ARRAY"):
            kind = f"ARRAY<{kind} NOT NULL>"
        else:
            return kind


def _unsupported(word: str) -> str:
    return f"type {word} is not supported; {ADVICE['types'][word]}"


def _prefix(cursor: Cursor) -> str:
    """A type without what makes it the element of an ARRAY after it."""
    start, word = cursor.offset, cursor.peek()
    if word not in _TYPES:
        if word in ADVICE["types"]:
            cursor.unsupported(_unsupported(word))
        if word in ADVICE["types_of_others"]:
            message = f"'{word}' is not a Flink type; write {ADVICE['types_of_others'][word]}"
            raise cursor.script.error(message, start, start + len(word))
        cursor.unknown_keyword(_TYPES)
    cursor.take()
    if word in _PLAIN:
        if word == "DOUBLE":
            cursor.accept("PRECISION")
        return _PLAIN[word]
    if word in ("DECIMAL", "NUMERIC", "DEC"):
        return _decimal(cursor, start)
    return _sized(cursor, word, start) if word in _SIZES else _nested(cursor, word)


def _decimal(cursor: Cursor, start: int) -> str:
    precision, scale = 10, 0
    if cursor.accept("("):
        precision = cursor.whole_number("the precision")
        if cursor.accept(","):
            scale = cursor.whole_number("the scale")
        cursor.expect(")")
    if not (1 <= precision <= 38 and scale <= precision):
        message = "DECIMAL(p, s) needs 1 <= p <= 38 and 0 <= s <= p"
        raise cursor.script.error(message, start)
    return f"DECIMAL({precision}, {scale})"


def _sized(cursor: Cursor, word: str, start: int) -> str:
    least, most = _SIZES[word]
    size = most if word in _GREATEST else _DEFAULTS.get(word, least)
    if cursor.accept("("):
        size = cursor.whole_number(f"the size of {word}")
        cursor.expect(")")
    if not least <= size <= most:
        raise cursor.script.error(
            f"the size of {word} must be from {least} to {most}, not {size}", start
        )
    if word == "TIMESTAMP":
        if cursor.accept("WITH", "LOCAL", "TIME", "ZONE"):
            word = "TIMESTAMP_LTZ"
        elif cursor.at("WITH", "TIME", "ZONE"):
            cursor.unsupported("TIMESTAMP WITH TIME ZONE is not supported; use TIMESTAMP_LTZ")
        else:
            cursor.accept("WITHOUT", "TIME", "ZONE")
    elif word == "TIME":
        cursor.accept("WITHOUT", "TIME", "ZONE")
    if word == "VARCHAR" and size == most:
        return "STRING"
    if word == "VARBINARY" and size == most:
        return "BYTES"
    return f"{word}({size})"


def _nested(cursor: Cursor, word: str) -> str:
    closing = ")" if word == "ROW" and cursor.at("(") else ">"
    cursor.expect("(" if closing == ")" else "<")
    if word in ("ARRAY", "MULTISET"):
        inner = parse_element(cursor)
    elif word == "MAP":
        key = parse_element(cursor)
        cursor.expect(",")
        inner = f"{key}, {parse_element(cursor)}"
    else:
        inner = ", ".join(cursor.listed(lambda: _field(cursor)))
    cursor.expect(closing)
    return f"{word}<{inner}>"


def _field(cursor: Cursor) -> str:
    name = cursor.identifier("a field's name")
    quoted = name if name.isidentifier() else ticked(name)
    kind = parse_element(cursor)
    if cursor.at_kind(TokenType.STRING):
        cursor.take()  # a comment, which a type cannot hold
    return f"{quoted} {kind}"
