"""Parses CREATE TABLE: columns, types, keys and options."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NoReturn

from sqlglot.tokenizer_core import TokenType

from streamhouse.sql.parser import elements
from streamhouse.sql.parser.strict_parser import ADVICE
from streamhouse.sql.parser.token_cursor import Cursor
from streamhouse.sql.plan import Column, ComputedColumn
from streamhouse.sql.statements.watermark import WatermarkClause, parse_watermark
from streamhouse.sql.syntax import CreateTable, Like
from streamhouse.sql.types import DECIMAL_SIZE, SIZES

_PLAIN = {
    "BOOLEAN": "BOOLEAN",
    "TINYINT": "TINYINT",
    "SMALLINT": "SMALLINT",
    "INT": "INT",
    "INTEGER": "INT",
    "BIGINT": "BIGINT",
    "FLOAT": "FLOAT",
    "REAL": "FLOAT",
    "STRING": "STRING",
    "BYTES": "BYTES",
    "DATE": "DATE",
}
_GREATEST = ("VARCHAR", "VARBINARY")
"""Types whose default size is the greatest; others have that of `_DEFAULTS`, or the least."""
_DEFAULTS = {"TIMESTAMP": 6, "TIMESTAMP_LTZ": 6}
TYPES = (*_PLAIN, *SIZES, "DOUBLE", "DECIMAL", "NUMERIC", "DEC", "ARRAY", "MAP", "ROW")
_STRATEGIES = ("INCLUDING", "EXCLUDING", "OVERWRITING")
_FEATURES = ("ALL", "CONSTRAINTS", "DISTRIBUTION", "GENERATED", "METADATA", "OPTIONS",
             "PARTITIONS", "WATERMARKS")  # fmt: skip
OVERWRITABLE = ("GENERATED", "METADATA", "OPTIONS", "WATERMARKS")
"""What a table may overwrite of the one that it is LIKE."""


def parse_type(cursor: Cursor) -> str:
    """Parse a type; returns Flink's upper-case spelling, without NOT NULL at the top level."""
    kind = _type(cursor)
    while True:
        if cursor.at("MULTISET"):
            _unsupported_type(cursor, "MULTISET")
        if cursor.accept("ARRAY"):
            kind = f"ARRAY<{kind}>"
        elif cursor.accept("NOT", "NULL", "ARRAY"):
            kind = f"ARRAY<{kind} NOT NULL>"
        else:
            return kind


def _unsupported_type(cursor: Cursor, word: str) -> NoReturn:
    cursor.unsupported(f"type {word} is not supported; {ADVICE['types'][word]}")


def _type(cursor: Cursor) -> str:
    start, word = cursor.offset, cursor.peek()
    if word not in TYPES:
        if word in ADVICE["types"]:
            _unsupported_type(cursor, word)
        if word in ADVICE["types_of_others"]:
            message = f"'{word}' is not a Flink type; write {ADVICE['types_of_others'][word]}"
            raise cursor.script.error(message, start, start + len(word))
        cursor.unknown_keyword(TYPES)
    cursor.take()
    if word in _PLAIN:
        return _PLAIN[word]
    if word == "DOUBLE":
        cursor.accept("PRECISION")
        return "DOUBLE"
    if word in ("DECIMAL", "NUMERIC", "DEC"):
        return _decimal(cursor, start)
    if word in SIZES:
        return _sized(cursor, word, start)
    return _nested(cursor, word)


def _decimal(cursor: Cursor, start: int) -> str:
    precision, scale = 10, 0
    if cursor.accept("("):
        precision = elements.whole_number(cursor, "the precision")
        if cursor.accept(","):
            scale = elements.whole_number(cursor, "the scale")
        cursor.expect(")")
    if not (1 <= precision <= 38 and scale <= precision):
        raise cursor.script.error(DECIMAL_SIZE, start)
    return f"DECIMAL({precision}, {scale})"


def _sized(cursor: Cursor, word: str, start: int) -> str:
    least, most = SIZES[word]
    size = most if word in _GREATEST else _DEFAULTS.get(word, least)
    if cursor.accept("("):
        size = elements.whole_number(cursor, f"the size of {word}")
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


def _element(cursor: Cursor) -> str:
    kind = parse_type(cursor)
    if cursor.accept("NOT", "NULL"):
        return f"{kind} NOT NULL"
    cursor.accept("NULL")
    return kind


def _nested(cursor: Cursor, word: str) -> str:
    closing = ")" if word == "ROW" and cursor.at("(") else ">"
    cursor.expect("(" if closing == ")" else "<")
    if word == "ARRAY":
        inner = _element(cursor)
    elif word == "MAP":
        key = _element(cursor)
        cursor.expect(",")
        inner = f"{key}, {_element(cursor)}"
    else:
        fields = [_field(cursor)]
        while cursor.accept(","):
            fields.append(_field(cursor))
        inner = ", ".join(fields)
    cursor.expect(closing)
    return f"{word}<{inner}>"


def _field(cursor: Cursor) -> str:
    name = elements.identifier(cursor, "a field's name")
    quoted = name if name.isidentifier() else f"`{name.replace('`', '``')}`"
    kind = _element(cursor)
    token = cursor.current
    if token is not None and token.token_type == TokenType.STRING:
        cursor.take()  # a comment, which a type cannot hold
    return f"{quoted} {kind}"


@dataclass
class _Body:
    """What has been parsed so far of the parentheses of a CREATE TABLE."""

    columns: list[Column] = field(default_factory=list)
    computed: list[ComputedColumn] = field(default_factory=list)
    primary_key: tuple[str, ...] = ()
    key_start: int = 0
    watermark: WatermarkClause | None = None

    def taken(self) -> set[str]:
        return {c.name for c in self.columns} | {c.name for c in self.computed}


def parse_create_table(cursor: Cursor, temporary: bool) -> CreateTable:
    """Parse the rest of CREATE [TEMPORARY] TABLE."""
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    name = elements.dotted_name(cursor, "the table's name")
    body = _Body()
    if cursor.peek() not in ("LIKE", "AS", "WITH", "COMMENT", "PARTITIONED"):
        cursor.expect("(")
        _item(cursor, body)
        while cursor.accept(","):
            _item(cursor, body)
        if not cursor.accept(")"):
            cursor.fail("expected ',' or ')'")
    comment = elements.string(cursor, "a comment") if cursor.accept("COMMENT") else None
    if cursor.at("DISTRIBUTED"):
        cursor.unsupported(
            "DISTRIBUTED BY is not supported; use the options 'bucket', 'bucket-key'"
        )
    partitioned: tuple[str, ...] = ()
    partition_start = cursor.offset
    if cursor.accept("PARTITIONED", "BY"):
        partitioned = elements.identifiers(cursor, "a partition column")
    options = elements.option_list(cursor) if cursor.accept("WITH") else {}
    like = _like(cursor) if cursor.at("LIKE") else None
    filled_by = elements.query(cursor) if like is None and cursor.accept("AS") else None
    if filled_by is None:
        cursor.end("COMMENT, PARTITIONED BY, WITH, LIKE, AS or the end of the statement (;)")
    if like is None and filled_by is None:
        _check(cursor, body, partitioned, partition_start)
    columns = tuple(
        replace(column, nullable=column.nullable and column.name not in body.primary_key)
        for column in body.columns
    )
    return CreateTable(
        *cursor.place, name, columns, tuple(body.computed), body.primary_key, partitioned,
        options, comment, temporary, if_not_exists,
        None if body.watermark is None else body.watermark.watermark, like, filled_by,
    )  # fmt: skip


def _like(cursor: Cursor) -> Like:
    """Parse `LIKE t [(INCLUDING | EXCLUDING | OVERWRITING feature …)]`."""
    cursor.expect("LIKE")
    table = elements.dotted_name(cursor, "the name of the table to take the columns from")
    chosen: dict[str, str] = {}
    if cursor.accept("("):
        while not cursor.accept(")"):
            strategy, start = cursor.peek(), cursor.offset
            if strategy not in _STRATEGIES:
                cursor.unknown_keyword(_STRATEGIES)
            cursor.take()
            feature = cursor.peek()
            allowed = OVERWRITABLE if strategy == "OVERWRITING" else _FEATURES
            if feature not in allowed:
                cursor.unknown_keyword(allowed)
            cursor.take()
            if feature in chosen:
                raise cursor.script.error(f"LIKE names {feature} twice", start)
            chosen[feature] = strategy
    return Like(table, chosen)


def _item(cursor: Cursor, body: _Body) -> None:
    """Parse one column, computed column, watermark or constraint."""
    if cursor.at("WATERMARK", "FOR"):
        body.watermark = parse_watermark(cursor, body.watermark)
        return
    if cursor.at("CONSTRAINT") or cursor.at("PRIMARY", "KEY"):
        start = cursor.offset
        if cursor.accept("CONSTRAINT"):
            elements.identifier(cursor, "the constraint's name")
        if not cursor.at("PRIMARY", "KEY"):
            cursor.unsupported(
                "the only supported constraint is PRIMARY KEY … NOT ENFORCED; leave this out"
            )
        cursor.expect("PRIMARY", "KEY")
        _set_primary_key(cursor, body, elements.identifiers(cursor, "a key column"), start)
        _not_enforced(cursor)
        return
    if cursor.at("FOREIGN", "KEY") or (cursor.at("CHECK") and cursor.peek(1) == "("):
        cursor.unsupported(f"{cursor.peek()} is not supported; leave it out")
    if cursor.at("UNIQUE") and cursor.peek(1) == "(":
        cursor.unsupported("UNIQUE is not supported; use PRIMARY KEY … NOT ENFORCED")
    _column(cursor, body)


def _column(cursor: Cursor, body: _Body) -> None:
    start = cursor.offset
    name = elements.identifier(cursor, "a column's name")
    if name in body.taken():
        raise cursor.script.error(f"column '{name}' is defined twice", start, start + len(name))
    if cursor.accept("AS"):
        expression = cursor.until(",", "COMMENT")
        if not expression:
            cursor.fail("expected an expression")
        elements.checked_expression(cursor, expression)
        if cursor.accept("COMMENT"):
            elements.string(cursor, "a comment")
        place = len(body.columns) + len(body.computed)
        body.computed.append(ComputedColumn(name, cursor.text_of(expression), place))
        return
    if cursor.at(",") or cursor.at(")"):
        cursor.fail(f"column '{name}' has no type; a SELECT after AS names and orders its columns")
    kind = parse_type(cursor)
    nullable, comment = True, None
    metadata: str | None = None
    virtual = False
    while not cursor.at(",") and not cursor.at(")") and not cursor.done:
        if cursor.accept("NOT", "NULL"):
            nullable = False
        elif cursor.accept("NULL"):
            nullable = True
        elif cursor.at("PRIMARY", "KEY"):
            key_start = cursor.offset
            cursor.expect("PRIMARY", "KEY")
            _set_primary_key(cursor, body, (name,), key_start)
            _not_enforced(cursor)
        elif cursor.accept("COMMENT"):
            comment = elements.string(cursor, "a comment")
        elif cursor.accept("METADATA"):
            metadata = elements.string(cursor, "a metadata key") if cursor.accept("FROM") else name
            virtual = cursor.accept("VIRTUAL")
        elif cursor.at("UNIQUE") or cursor.at("DEFAULT") or cursor.at("CHECK"):
            cursor.unsupported(f"{cursor.peek()} on a column is not supported; leave it out")
        else:
            cursor.fail("expected NOT NULL, PRIMARY KEY NOT ENFORCED, COMMENT, ',' or ')'")
    body.columns.append(Column(name, kind, nullable, comment, metadata, virtual))


def _set_primary_key(cursor: Cursor, body: _Body, key: tuple[str, ...], start: int) -> None:
    if body.primary_key:
        raise cursor.script.error("a table has one PRIMARY KEY; this is the second", start)
    body.primary_key, body.key_start = key, start


def _not_enforced(cursor: Cursor) -> None:
    if not cursor.accept("NOT", "ENFORCED"):
        cursor.fail("expected NOT ENFORCED after PRIMARY KEY")


def _check(cursor: Cursor, body: _Body, partitioned: tuple[str, ...], partition_start: int) -> None:
    names = {column.name for column in body.columns if column.metadata is None}
    for what, keys, start in (
        ("PRIMARY KEY", body.primary_key, body.key_start),
        ("PARTITIONED BY", partitioned, partition_start),
    ):
        for key in keys:
            if key not in names:
                listed = ", ".join(column.name for column in body.columns if column.name in names)
                if key in body.taken():
                    message = f"{what}: column '{key}' is not stored; known: {listed}"
                    raise cursor.script.error(message, start)
                raise cursor.script.error(
                    f"{what}: there is no column '{key}'; known: {listed}", start
                )
        if len(set(keys)) < len(keys):
            raise cursor.script.error(f"{what} names a column twice", start)
    if not names:
        message = "a table needs at least one column that is neither computed nor METADATA"
        raise cursor.script.error(message, cursor.offset)
    if body.watermark is not None:
        body.watermark.check(cursor, body.columns, body.computed)
