"""Parses CREATE TABLE: columns, types, keys and options."""

from dataclasses import dataclass, field, replace

from streamhouse.sql.parser import elements
from streamhouse.sql.parser.token_cursor import Cursor
from streamhouse.sql.parser.types import parse_type
from streamhouse.sql.plan import Column, ComputedColumn
from streamhouse.sql.statements.watermark import WatermarkClause, parse_watermark
from streamhouse.sql.syntax import CreateTable, Like

_STRATEGIES = ("INCLUDING", "EXCLUDING", "OVERWRITING")
_FEATURES = ("ALL", "CONSTRAINTS", "DISTRIBUTION", "GENERATED", "METADATA", "OPTIONS",
             "PARTITIONS", "WATERMARKS")  # fmt: skip
OVERWRITABLE = ("GENERATED", "METADATA", "OPTIONS", "WATERMARKS")
"""What a table may overwrite of the one that it is LIKE."""


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
        cursor.wrapped(lambda: _item(cursor, body))
    comment = cursor.string("a comment") if cursor.accept("COMMENT") else None
    cursor.refuse("table")
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
            start, strategy = cursor.offset, cursor.one_of(*_STRATEGIES)
            allowed = OVERWRITABLE if strategy == "OVERWRITING" else _FEATURES
            feature = cursor.one_of(*allowed)
            if feature in chosen:
                raise cursor.script.error(f"LIKE names {feature} twice", start)
            chosen[feature] = strategy
    return Like(table, chosen)


def _item(cursor: Cursor, body: _Body) -> None:
    """Parse one column, computed column, watermark or constraint."""
    start = cursor.offset
    if cursor.accept("WATERMARK", "FOR"):
        if body.watermark is not None:
            raise cursor.script.error("a table has one WATERMARK; this is the second", start)
        body.watermark = parse_watermark(cursor)
        return
    if cursor.at("CONSTRAINT") or cursor.at("PRIMARY", "KEY"):
        if cursor.accept("CONSTRAINT"):
            cursor.identifier("the constraint's name")
        if not cursor.at("PRIMARY", "KEY"):
            cursor.unsupported(
                "the only supported constraint is PRIMARY KEY … NOT ENFORCED; leave this out"
            )
        cursor.expect("PRIMARY", "KEY")
        _set_primary_key(cursor, body, elements.identifiers(cursor, "a key column"), start)
        return
    cursor.refuse("table_elements")
    _column(cursor, body)


def _column(cursor: Cursor, body: _Body) -> None:
    start = cursor.offset
    name = cursor.identifier("a column's name")
    if name in body.taken():
        raise cursor.script.error(f"column '{name}' is defined twice", start, start + len(name))
    if cursor.accept("AS"):
        expression = cursor.until(",", "COMMENT")
        if not expression:
            cursor.fail("expected an expression")
        elements.checked_expression(cursor, expression)
        if cursor.accept("COMMENT"):
            cursor.string("a comment")
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
        elif cursor.accept("COMMENT"):
            comment = cursor.string("a comment")
        elif cursor.accept("METADATA"):
            metadata = cursor.string("a metadata key") if cursor.accept("FROM") else name
            virtual = cursor.accept("VIRTUAL")
        else:
            cursor.refuse("column_elements")
            cursor.fail("expected NOT NULL, PRIMARY KEY NOT ENFORCED, COMMENT, ',' or ')'")
    body.columns.append(Column(name, kind, nullable, comment, metadata, virtual))


def _set_primary_key(cursor: Cursor, body: _Body, key: tuple[str, ...], start: int) -> None:
    if body.primary_key:
        raise cursor.script.error("a table has one PRIMARY KEY; this is the second", start)
    body.primary_key, body.key_start = key, start
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
                taken = key in body.taken()
                problem = (
                    f"column '{key}' is not stored" if taken else f"there is no column '{key}'"
                )
                raise cursor.script.error(f"{what}: {problem}; known: {listed}", start)
    if not names:
        message = "a table needs at least one column that is neither computed nor METADATA"
        raise cursor.script.error(message, cursor.offset)
    if body.watermark is not None:
        body.watermark.check(cursor, body.columns, body.computed)
