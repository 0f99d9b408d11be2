"""The changes that give a Paimon table the columns which its tables in MySQL have now.

They are computed from the table as it is. So applying them twice, as after a crash, does nothing.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from streamhouse.connectors.mysql_cdc.binlog.statements import ANY
from streamhouse.errors import SchemaChangeError
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.schema.type_widening import widens
from streamhouse.paimon.schema.validation.column_rules import name_conflict
from streamhouse.runtime.sync.options import SchemaChanges
from streamhouse.sql.plan import Column
from streamhouse.sql.schema_changes import (
    AddColumn,
    ColumnPosition,
    DropColumn,
    MoveColumn,
    RenameColumn,
    SchemaChange,
    SetNullable,
    SetType,
)

_TEXT = "STRING"
_KINDS = {
    **dict.fromkeys(("TINYINT", "SMALLINT", "INT", "BIGINT"), "integer"),
    **dict.fromkeys(("STRING", "VARCHAR", "CHAR"), "text"),
    **dict.fromkeys(("BYTES", "VARBINARY", "BINARY"), "bytes"),
}


@dataclass(frozen=True)
class Wanted:
    """The columns that come from MySQL, in order, and what they were before a statement.

    `before`: types by name; those that are not in `columns` any more were dropped or renamed.
    `renamed`: new names by the old ones in lower case; `shared`: those that other tables still
    have. `dropped`: names whose columns end, as of `DdlChange`. `leftover`: columns that an attempt
    which was not committed has added. `ordered`: the order of `columns` is that of one table.
    `statement`: for messages.
    """

    columns: Sequence[Column]
    key: Sequence[str] = ()
    before: Mapping[str, str] = field(default_factory=dict)
    renamed: Mapping[str, str] = field(default_factory=dict)
    shared: Collection[str] = ()
    dropped: Collection[str] = ()
    leftover: Collection[str] = ()
    ordered: bool = True
    statement: str = ""


class Reconciliation:
    """Plans the changes of one table; raises `SchemaChangeError` if there are none that fit.

    `changes`: in order. `replaced`: columns whose rows lack the values that MySQL has. `left_out`:
    columns that the table cannot have, with the reasons.
    """

    def __init__(self, table: Table, wanted: Wanted, rules: SchemaChanges) -> None:
        self._table, self._wanted, self._rules = table, wanted, rules
        self._columns = {column.name: column for column in table.columns}
        self._keys = {*table.primary_key, *table.partition_keys}
        self._names = {column.name for column in wanted.columns}
        self.changes: list[SchemaChange] = []
        self.left_out: dict[str, str] = {}
        self._replaced: list[str] = []
        self._before = self._renames()
        for column in wanted.columns:
            self._fit(column)
        self._drop()
        if rules.keeps_columns_equal and wanted.ordered:
            self._order()
        there = self._names & self._columns.keys()
        self.replaced = [name for name in self._replaced if name in there]

    def _renames(self) -> dict[str, str]:
        """Rename columns; returns the types before the statement, by the names after it."""
        before = dict(self._wanted.before)
        for old in list(before):
            cases = (name for name in self._names if name.lower() == old.lower())
            other = None if old in self._names else next(cases, None)
            new = self._wanted.renamed.get(old.lower(), other)
            if new is None or new == old:
                continue
            free = new in self._names and new not in self._columns and old in self._columns
            # Two columns cannot differ only in case, so such a rename is one in any mode.
            renames = self._rules.keeps_columns_equal or new.lower() == old.lower()
            follows = renames and self._rules.follows("rename.column")
            free = free and name_conflict(new, self._columns.keys() - {old}) is None
            if free and follows and old not in self._wanted.shared:
                self._rename(old, new)
                before[new] = before.pop(old)
            elif old in self._columns:
                self._replaced.append(new)
        return before

    def _rename(self, old: str, new: str) -> None:
        self.changes.append(RenameColumn((old,), new))
        self._columns = {
            (new if name == old else name): (replace(column, name=new) if name == old else column)
            for name, column in self._columns.items()
        }
        self._keys = {new if name == old else name for name in self._keys}

    def _fit(self, column: Column) -> None:
        own = self._columns.get(column.name)
        if own is None:
            self._add(column)
            return
        self._retype(column, own)
        if column.nullable and column.name not in self._keys:
            self._release(column.name)

    def _add(self, column: Column) -> None:
        event = "rename.column" if column.name in self._wanted.renamed.values() else "add.column"
        if not self._rules.follows("add.column") or not self._rules.follows(event):  # type: ignore[arg-type]
            return
        reason = name_conflict(column.name, self._columns)
        if reason is not None:
            if self._rules.behavior == "evolve":
                raise self._error(f"Paimon cannot have column '{column.name}': {reason}")
            self.left_out[column.name] = reason
            return
        position = self._position(column.name) if self._rules.keeps_columns_equal else None
        added = replace(column, nullable=True)
        self.changes.append(AddColumn(added, position, if_not_exists=True))
        self._place(added, position)

    def _place(self, column: Column, position: ColumnPosition | None) -> None:
        """Add or move a column."""
        others = [own for own in self._columns.values() if own.name != column.name]
        at = len(others)
        if position is not None:
            names = [own.name for own in others]
            at = 0 if position.after is None else names.index(position.after) + 1
        self._columns = {own.name: own for own in (*others[:at], column, *others[at:])}

    def _position(self, name: str) -> ColumnPosition:
        """Behind the column that is before it in MySQL."""
        order = [column.name for column in self._wanted.columns]
        before = [other for other in order[: order.index(name)] if other in self._columns]
        return ColumnPosition(before[-1] if before else None)

    # -- types

    def _retype(self, column: Column, own: Column) -> None:
        name, before = column.name, self._before.get(column.name)
        changed = before is not None and before != column.type
        narrower = changed and before is not None and not widens(before, column.type)
        again = bool({name.lower(), ANY} & set(self._wanted.dropped))
        if narrower and not again and self._rules.behavior == "evolve":
            raise self._error(
                f"it makes column '{name}' {column.type}, and {before} cannot become that in Paimon"
            )
        other_kind = narrower and _kind(own.type) == "text" and _kind(column.type) != "text"
        if name in self._keys:
            self._keep_key(column, own)
            return
        if not self._rules.follows("alter.column.type"):
            return
        if other_kind and self._rules.behavior == "try_evolve":
            # Text holds the values, but they are not MySQL's.
            self._exchange(column)
            return
        if widens(column.type, own.type):
            return
        if name in self._wanted.leftover:
            self._exchange(column)
            return
        wider = self._wider(own.type, column.type)
        if wider is not None:
            if wider != own.type:
                self.changes.append(SetType((name,), wider))
            self._columns[name] = replace(own, type=wider)
        elif self._rules.behavior == "lenient":
            self._replace(column)
        elif again or self._rules.behavior == "try_evolve":
            self._exchange(column)
        else:
            raise self._error(
                f"it makes column '{name}' {column.type}, and the column of "
                f"{self._table.identifier} is {own.type}, which cannot become that"
            )

    def _wider(self, old: str, new: str) -> str | None:
        """A type that holds both, and that a column of the type `old` can become."""
        if widens(old, new):
            return new
        return _TEXT if self._rules.behavior != "evolve" and widens(old, _TEXT) else None

    def _keep_key(self, column: Column, own: Column) -> None:
        """Go on with the type of a key, which cannot change; values that do not fit end a batch.

        Another kind of type might make two keys one: as numbers, '01' and '1' are equal.
        """
        if widens(column.type, own.type):
            return
        evolves = self._rules.behavior == "evolve" and self._rules.follows("alter.column.type")
        if evolves or not (widens(own.type, column.type) and _kind(own.type) == _kind(column.type)):
            raise refused_key(
                self._table.identifier,
                self._wanted.statement,
                f"it makes column '{column.name}' {column.type}, and the column of "
                f"{self._table.identifier} is {own.type} and part of its key, which cannot change",
            )

    def _replace(self, column: Column) -> None:
        """Keep the old column under another name, and add one of the new type."""
        number, kept = 1, f"{column.name}_old"
        while kept in self._columns or kept in self._names:
            number += 1
            kept = f"{column.name}_old{number}"
        self._rename(column.name, kept)
        self._release(kept)
        self._add(column)
        self._replaced.append(column.name)

    def _exchange(self, column: Column) -> None:
        """Drop the old column, and add one of the new type."""
        self.changes.append(DropColumn((column.name,)))
        del self._columns[column.name]
        self._add(column)
        self._replaced.append(column.name)

    # -- columns that MySQL no longer has, and the order

    def _drop(self) -> None:
        for name in [*self._before, *self._wanted.leftover]:
            if name in self._names or name not in self._columns:
                continue
            if self._rules.keeps_columns_equal and self._rules.follows("drop.column"):
                if name in self._keys:
                    raise self._error(
                        f"it drops or renames column '{name}', which is part of the key of "
                        f"{self._table.identifier}"
                    )
                self.changes.append(DropColumn((name,)))
                del self._columns[name]
            else:
                self._release(name)

    def _release(self, name: str) -> None:
        """Let new rows have no value of a column."""
        own = self._columns[name]
        if not own.nullable:
            self.changes.append(SetNullable((name,), True))
            self._columns[name] = replace(own, nullable=True)

    def _order(self) -> None:
        order = [column.name for column in self._wanted.columns if column.name in self._columns]
        if [name for name in self._columns if name in self._names] == order:
            return
        for before, name in zip([None, *order], order, strict=False):
            names, position = list(self._columns), ColumnPosition(before)
            self._place(self._columns[name], position)
            if list(self._columns) != names:
                self.changes.append(MoveColumn(name, position))

    def _error(self, why: str) -> SchemaChangeError:
        return refused(self._table.identifier, self._wanted.statement, why)


def refused(target: str, statement: str, why: str) -> SchemaChangeError:
    """The error of a statement that a sync cannot follow."""
    return SchemaChangeError(
        f"{target} cannot follow '{statement}': {why}. Go on with --schema-change-behavior "
        "lenient or ignore, or exclude the table; nothing after the statement was written to it"
    )


def refused_key(target: str, statement: str, why: str) -> SchemaChangeError:
    """The error of a statement after which the table in MySQL has another key."""
    return SchemaChangeError(
        f"{target} cannot follow '{statement}': {why}. To go on with the other tables, exclude the "
        f"table. To follow it again, drop {target}, and sync it alone, with another --name; "
        "nothing after the statement was written to it"
    )


def _kind(kind: str) -> str:
    """What a type has values of; a value of the same kind fits as it is, or is an error."""
    name = kind.partition("(")[0].strip()
    # Further digits of a time are cut off, not an error.
    return kind if name.startswith("TIME") else _KINDS.get(name, name)
