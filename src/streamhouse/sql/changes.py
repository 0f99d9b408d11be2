"""What an ALTER TABLE changes, as frozen records; a column is a path, its name alone mostly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from streamhouse.sql.plan import Column, Name


@dataclass(frozen=True)
class Place:
    """Where a column goes: after another one, or to the front (`after` None)."""

    after: str | None = None


@dataclass(frozen=True)
class AddColumn:
    """A new column, at the end or at a place; `parent` is the ROW column that gets it."""

    column: Column
    place: Place | None = None
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
    """Another type in Flink's spelling; whether nulls are allowed stays."""

    path: Name
    type: str


@dataclass(frozen=True)
class SetNullable:
    """Whether nulls are allowed; `implied` by a MODIFY that says nothing of it."""

    path: Name
    nullable: bool
    implied: bool = False


@dataclass(frozen=True)
class SetColumnComment:
    path: Name
    comment: str | None


@dataclass(frozen=True)
class SetDefault:
    """The value of rows that give none, as text; None takes it away."""

    path: Name
    default: str | None


@dataclass(frozen=True)
class MoveColumn:
    name: str
    place: Place


@dataclass(frozen=True)
class SetTableOption:
    """An option of the table; the key `comment` is the table's comment."""

    key: str
    value: str


@dataclass(frozen=True)
class ResetTableOption:
    key: str


Change: TypeAlias = (
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
