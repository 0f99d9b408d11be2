"""Table sets: the tables that a sync follows, as numbered files beside its checkpoint.

A batch's offset has the number of the table set that it was planned with. A number is never
written twice, so a batch that runs again finds the same tables. Other files describe tables that
were altered later; their names, which offsets have, depend on the content.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from streamhouse.connectors.mysql_cdc.database.followed_table import FollowedTable
from streamhouse.connectors.mysql_cdc.database.progress import DatabaseProgress
from streamhouse.connectors.mysql_cdc.json_records import Names, from_json, to_json
from streamhouse.durable_files import read_json, replace_json, replace_text
from streamhouse.mysql.metadata import TableNames

_VERSIONS = "versions"


class TableVersions:
    """The files of one sync; its planner writes them."""

    def __init__(self, checkpoint: Path) -> None:
        self._folder = checkpoint / _VERSIONS
        self._read: dict[str, FollowedTable] = {}

    def add(self, table: FollowedTable) -> str:
        """Write the table's description, if it is a new one; returns its name."""
        text = json.dumps(to_json(table), sort_keys=True)
        name = f"{table.id}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
        if name not in self._read and not (self._folder / name).exists():
            self._folder.mkdir(parents=True, exist_ok=True)
            replace_text(self._folder / name, text)
        self._read[name] = table
        return name

    def get(self, name: str) -> FollowedTable:
        """The table that was added under a name."""
        if name not in self._read:
            self._read[name] = from_json(FollowedTable, read_json(self._folder / name))
        return self._read[name]

    def all(self, progress: DatabaseProgress, table_set: TableSet) -> dict[str, FollowedTable]:
        """All tables of a table set, by their ids, as they are at an offset."""
        return {id: self.at(progress, table) for id, table in table_set.tables.items()}

    def at(self, progress: DatabaseProgress, table: FollowedTable) -> FollowedTable:
        """A table as it is at an offset."""
        if table.id in progress.versions:
            table = self.get(progress.versions[table.id])
        return table.hidden_in(progress.hidden.get(table.id, ()))

    def keep(self, names: Collection[str]) -> None:
        """Delete all files but these."""
        if self._folder.is_dir():
            for name in os.listdir(self._folder):
                if name not in names:
                    (self._folder / name).unlink(missing_ok=True)


_FOLDER = "tables"


@dataclass(frozen=True)
class TableSet:
    """A numbered set of followed tables, by their ids; `next_id`: the lowest id never used.

    `former`: the names of tables that an earlier set had and a later one did not.
    """

    number: int
    next_id: int
    zone: str
    tables: Mapping[str, FollowedTable]
    former: Names = frozenset()

    def by_names(self) -> dict[TableNames, FollowedTable]:
        """The tables by their names in MySQL."""
        return {table.names: table for table in self.tables.values()}


class TableSets:
    """The table sets of one sync; the driver writes them, its planner and tasks read them."""

    def __init__(self, checkpoint: Path) -> None:
        self._folder = checkpoint / _FOLDER
        self._read: dict[int, TableSet] = {}

    def latest_number(self) -> int:
        """The number of the newest table set; 0 if there is none."""
        try:
            return max(
                (int(name) for name in os.listdir(self._folder) if name.isdigit()), default=0
            )
        except FileNotFoundError:
            return 0

    def latest(self) -> TableSet:
        """The newest table set; an empty one with the number 0 if there is none."""
        return self.get(self.latest_number())

    def get(self, number: int) -> TableSet:
        """The table set with a number."""
        if number == 0:
            return TableSet(0, 0, "UTC", {})
        if number not in self._read:
            self._read[number] = from_json(TableSet, read_json(self._folder / str(number)))
        return self._read[number]

    def add(self, tables: Sequence[FollowedTable], next_id: int, zone: str) -> TableSet:
        """Write the next table set."""
        latest = self.latest()
        number = latest.number + 1
        left = {table.full_name for table in latest.tables.values()}
        former = latest.former | (left - {table.full_name for table in tables})
        by_id = {table.id: table for table in tables}
        made = self._read[number] = TableSet(number, next_id, zone, by_id, former)
        replace_json(self._folder / str(number), to_json(made))
        return made

    def drop_before(self, number: int) -> None:
        """Delete the table sets before one that no batch needs any more."""
        for name in os.listdir(self._folder):
            if name.isdigit() and int(name) < number:
                (self._folder / name).unlink(missing_ok=True)
