"""Parses ALTER TABLE, in Flink's and in Spark's syntax."""

from collections.abc import Callable
from dataclasses import dataclass

from sqlglot.tokenizer_core import TokenType

from streamhouse.sql.parser import elements
from streamhouse.sql.parser.token_cursor import Cursor
from streamhouse.sql.parser.types import parse_type
from streamhouse.sql.plan import Column, Name
from streamhouse.sql.schema_changes import (
    AddColumn,
    ColumnPosition,
    DropColumn,
    MoveColumn,
    RenameColumn,
    ResetTableOption,
    SchemaChange,
    SetColumnComment,
    SetDefault,
    SetNullable,
    SetTableOption,
    SetType,
)
from streamhouse.sql.statements.watermark import EXPRESSION_OPTION, TIME_OPTION, parse_watermark
from streamhouse.sql.syntax import Statement
from streamhouse.sql.views.statement import (
    AlterMaterializedView,
    CreateMaterializedView,
    parse_alter_materialized_view,
)


@dataclass(frozen=True)
class AlterTable(Statement):
    """ALTER TABLE: changes of one table, applied atomically; or a rename to `new_name`."""

    name: Name
    changes: tuple[SchemaChange, ...] = ()
    new_name: Name = ()
    if_exists: bool = False


@dataclass(frozen=True)
class _ColumnDefinition:
    """A column's definition in a statement; None for each part that it does not have."""

    path: Name
    type: str
    nullable: bool | None
    comment: str | None
    default: str | None
    position: ColumnPosition | None


def parse_alter(cursor: Cursor) -> AlterTable | AlterMaterializedView | CreateMaterializedView:
    """Parse the rest after ALTER."""
    if cursor.accept("MATERIALIZED"):
        return parse_alter_materialized_view(cursor)
    cursor.refuse("altered")
    cursor.expect("TABLE")
    if_exists = cursor.accept("IF", "EXISTS")
    name = elements.dotted_name(cursor, "the table's name")
    new_name: Name = ()
    changes: list[SchemaChange] = []
    if cursor.accept("RENAME", "TO"):
        new_name = elements.dotted_name(cursor, "the table's new name")
    else:
        changes = _changes(cursor)
    cursor.end()
    return AlterTable(*cursor.place, name, tuple(changes), new_name, if_exists)


def _changes(cursor: Cursor) -> list[SchemaChange]:
    for words, changes in _CHANGES.items():
        if cursor.accept(*words.split()):
            return changes(cursor)
    cursor.refuse("changes")
    cursor.unknown_keyword(tuple(dict.fromkeys(words.split()[0] for words in _CHANGES)))


def _refuse_unsupported(cursor: Cursor, action: str) -> None:
    """Raise for changes that Flink's syntax has and that are not supported here."""
    cursor.refuse("altered_columns", word=action)
    cursor.refuse(action)


def _watermark(cursor: Cursor) -> list[SchemaChange]:
    watermark = parse_watermark(cursor).watermark
    return [
        SetTableOption(TIME_OPTION, watermark.column),
        SetTableOption(EXPRESSION_OPTION, watermark.expression),
    ]


def _add(cursor: Cursor) -> list[SchemaChange]:
    _refuse_unsupported(cursor, "ADD")
    if_not_exists = False
    if cursor.accept("COLUMN") or cursor.accept("COLUMNS"):
        if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    changes: list[SchemaChange] = []
    for definition in _columns(cursor, "ADD"):
        column = Column(
            definition.path[-1],
            definition.type,
            definition.nullable is not False,
            definition.comment,
        )
        changes.append(AddColumn(column, definition.position, if_not_exists, definition.path[:-1]))
        changes += _default_of(definition)
    return changes


def _default_of(column: _ColumnDefinition) -> list[SchemaChange]:
    return [] if column.default is None else [SetDefault(column.path, column.default)]


def _columns(cursor: Cursor, action: str) -> list[_ColumnDefinition]:
    """`(c type …, …)`, or the same without parentheses."""
    take = cursor.wrapped if cursor.at("(") else cursor.listed
    return take(lambda: _column(cursor, action))


def _column(cursor: Cursor, action: str) -> _ColumnDefinition:
    _refuse_unsupported(cursor, action)
    path = elements.dotted_name(cursor, "a column")
    cursor.refuse("added_column")
    cursor.accept(":")
    kind = parse_type(cursor)
    nullable: bool | None = None
    comment = default = position = None
    while not (cursor.done or cursor.at(",") or cursor.at(")")):
        if cursor.accept("NOT", "NULL"):
            nullable = False
        elif cursor.accept("NULL"):
            nullable = True
        elif cursor.accept("COMMENT"):
            comment = cursor.string("a comment")
        elif cursor.accept("DEFAULT"):
            default = _literal(cursor)
        elif cursor.at("FIRST") or cursor.at("AFTER"):
            position = _column_position(cursor)
        else:
            cursor.refuse("altered_columns", word=action)
            cursor.fail("expected NOT NULL, COMMENT, DEFAULT, FIRST, AFTER, ',' or ')'")
    return _ColumnDefinition(path, kind, nullable, comment, default, position)


def _column_position(cursor: Cursor) -> ColumnPosition:
    if cursor.accept("FIRST"):
        return ColumnPosition()
    cursor.expect("AFTER")
    return ColumnPosition(cursor.identifier("the column before it"))


def _literal(cursor: Cursor) -> str:
    """A default value as Paimon stores it: the text of a constant."""
    sign = "-" if cursor.accept("-") else ""
    if not sign and cursor.peek() in ("DATE", "TIMESTAMP") and cursor.peek(1) == "":
        cursor.take()
        return cursor.string("a constant")
    unsigned = cursor.at_kind(TokenType.STRING) or cursor.peek() in ("TRUE", "FALSE")
    if not (cursor.at_kind(TokenType.NUMBER) or (unsigned and not sign)):
        cursor.fail("expected a constant: a number, a 'string', TRUE or FALSE")
    return sign + cursor.take().text


def _drop(cursor: Cursor) -> list[SchemaChange]:
    _refuse_unsupported(cursor, "DROP")
    if_exists = False
    if cursor.accept("COLUMN") or cursor.accept("COLUMNS"):
        if_exists = cursor.accept("IF", "EXISTS")
    take = cursor.wrapped if cursor.at("(") else cursor.listed
    paths = take(lambda: elements.dotted_name(cursor, "a column"))
    return [DropColumn(path, if_exists) for path in paths]


def _rename(cursor: Cursor) -> list[SchemaChange]:
    if_exists = cursor.accept("COLUMN") and cursor.accept("IF", "EXISTS")
    path = elements.dotted_name(cursor, "a column")
    cursor.expect("TO")
    return [RenameColumn(path, cursor.identifier("the column's new name"), if_exists)]


def _moved(cursor: Cursor, path: Name, position: ColumnPosition) -> MoveColumn:
    if len(path) > 1:
        cursor.unsupported(
            f"'{'.'.join(path)}' is a field of a ROW, but only columns can be moved; leave out "
            "FIRST or AFTER"
        )
    return MoveColumn(path[0], position)


def _modify(cursor: Cursor) -> list[SchemaChange]:
    """MODIFY: as in Flink, the new definition replaces the old one.

    Without NOT NULL, nulls are allowed. The comment is kept if the statement has none.
    """
    cursor.accept("COLUMN")
    changes: list[SchemaChange] = []
    for definition in _columns(cursor, "MODIFY"):
        changes.append(SetType(definition.path, definition.type))
        changes.append(
            SetNullable(
                definition.path, definition.nullable is not False, definition.nullable is None
            )
        )
        if definition.comment is not None:
            changes.append(SetColumnComment(definition.path, definition.comment))
        changes += _default_of(definition)
        if definition.position is not None:
            changes.append(_moved(cursor, definition.path, definition.position))
    return changes


def _alter_column(cursor: Cursor) -> list[SchemaChange]:
    """Spark's `ALTER | CHANGE [COLUMN] c <what>`, which changes only what it names."""
    cursor.accept("COLUMN")
    path = elements.dotted_name(cursor, "a column")
    if cursor.accept("SET", "NOT", "NULL"):
        return [SetNullable(path, False)]
    if cursor.accept("DROP", "NOT", "NULL"):
        return [SetNullable(path, True)]
    if cursor.accept("SET", "DEFAULT"):
        return [SetDefault(path, _literal(cursor))]
    if cursor.accept("DROP", "DEFAULT"):
        return [SetDefault(path, None)]
    changes: list[SchemaChange] = []
    if not (cursor.at("COMMENT") or cursor.at("FIRST") or cursor.at("AFTER")):
        if not cursor.accept("SET", "DATA", "TYPE"):
            cursor.accept("TYPE")
        changes.append(SetType(path, parse_type(cursor)))
    if cursor.accept("COMMENT"):
        changes.append(SetColumnComment(path, cursor.string("a comment")))
    if cursor.at("FIRST") or cursor.at("AFTER"):
        changes.append(_moved(cursor, path, _column_position(cursor)))
    return changes


def _set(cursor: Cursor) -> list[SchemaChange]:
    cursor.accept("TBLPROPERTIES")
    return [SetTableOption(key, value) for key, value in elements.option_list(cursor).items()]


def _reset(cursor: Cursor) -> list[SchemaChange]:
    return cursor.wrapped(lambda: ResetTableOption(cursor.string("an option's key")))


def _unset(cursor: Cursor) -> list[SchemaChange]:
    cursor.accept("IF", "EXISTS")
    return _reset(cursor)


_CHANGES: dict[str, Callable[[Cursor], list[SchemaChange]]] = {
    "ADD WATERMARK FOR": _watermark,
    "MODIFY WATERMARK FOR": _watermark,
    "DROP WATERMARK": lambda _: [*map(ResetTableOption, (TIME_OPTION, EXPRESSION_OPTION))],
    "ADD": _add,
    "DROP": _drop,
    "RENAME": _rename,
    "MODIFY": _modify,
    "ALTER": _alter_column,
    "CHANGE": _alter_column,
    "SET": _set,
    "RESET": _reset,
    "UNSET TBLPROPERTIES": _unset,
}
"""What parses the rest of a change, by its first words."""
