"""The changes of an ALTER TABLE, as frozen records.

A `path` is a column's name as a tuple, mostly of one part; more parts name a field of a ROW column.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from streamhouse.sql.plan import Column, Name


@dataclass(frozen=True)
class ColumnPosition:
    """The position of a column: after the column `after`, or first if that is None."""

    after: str | None = None


@dataclass(frozen=True)
class AddColumn:
    """A new column, at the end or at `position`.

    `parent` is the path of the ROW column that gets it as a field; empty for the table itself.
    """

    column: Column
    position: ColumnPosition | None = None
    if_not_exists: bool = False
    parent: Name = ()


@dataclass(frozen=True)
class DropColumn:
    path: Name
    if_exists: bool = False


@dataclass(frozen=True)
class RenameColumn:
    path: Name
    new_name: str
    if_exists: bool = False


@dataclass(frozen=True)
class SetType:
    """Sets a column's type, in Flink's spelling; does not change whether it allows nulls."""

    path: Name
    type: str


@dataclass(frozen=True)
class SetNullable:
    """Whether a column allows nulls; `implied`: by a MODIFY without NULL or NOT NULL."""

    path: Name
    nullable: bool
    implied: bool = False


@dataclass(frozen=True)
class SetColumnComment:
    path: Name
    comment: str | None


@dataclass(frozen=True)
class SetDefault:
    """The default value of a column, as text; None removes the default."""

    path: Name
    default: str | None


@dataclass(frozen=True)
class MoveColumn:
    name: str
    position: ColumnPosition


@dataclass(frozen=True)
class SetTableOption:
    """An option of the table; the key `comment` is the table's comment."""

    key: str
    value: str


@dataclass(frozen=True)
class ResetTableOption:
    key: str


SchemaChange: TypeAlias = (
    AddColumn
    | DropColumn
    | RenameColumn
    | SetType
    | SetNullable
    | SetColumnComment
    | SetDefault
    | MoveColumn
    | SetTableOption
    | ResetTableOption
)


def column_changes(before: Sequence[Column], after: Sequence[Column]) -> Iterator[SchemaChange]:
    """The changes of a table's columns that let it have rows of the columns `after`.

    New columns may be null. A column that allows nulls goes on allowing them.
    """
    left = {column.name: column for column in after}
    order = [column.name for column in before if column.name in left]
    yield from (DropColumn((column.name,)) for column in before if column.name not in left)
    known = {column.name: column for column in before}
    for number, column in enumerate(after):
        place = ColumnPosition(after[number - 1].name if number else None)
        own = known.get(column.name)
        if own is None:
            yield AddColumn(replace(column, nullable=True), place)
            order.insert(number, column.name)
            continue
        if order[number] != column.name:
            yield MoveColumn(column.name, place)
            order.remove(column.name)
            order.insert(number, column.name)
        if own.type != column.type:
            yield SetType((column.name,), column.type)
        if column.nullable and not own.nullable:
            yield SetNullable((column.name,), True)
