"""Table sets: the tables that a sync follows, as numbered files beside its checkpoint.

A batch's offset has the number of the table set that it was planned with. A number is never
written twice, so a batch that runs again finds the same tables. Offsets describe tables that were
altered since their table set was written.
"""

import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from streamhouse.connectors.json_records import Names, from_json, to_json
from streamhouse.connectors.mysql_cdc.database.followed_table import FollowedTable
from streamhouse.durable_files import read_json, replace_json
from streamhouse.mysql.metadata import TableNames

_FOLDER = "tables"


Shape: TypeAlias = tuple[tuple[str, ...], tuple[str, ...]]
"""The names of a table's columns, and its primary key."""


@dataclass(frozen=True)
class TableSet:
    """A numbered set of followed tables, by their ids; `next_id`: the lowest id never used.

    `former`: the names of tables that an earlier set had and a later one did not. `unread`: the
    targets of which the batches before it lack rows, so that the next one reads them again.
    `created`: the columns and keys of targets that the sync creates before it follows their tables.
    `server`: the address of MySQL.
    """

    number: int
    next_id: int
    zone: str
    tables: Mapping[str, FollowedTable]
    former: Names = frozenset()
    unread: Names = frozenset()
    created: Mapping[str, Shape] = field(default_factory=dict)
    server: str = ""

    def by_names(self) -> dict[TableNames, FollowedTable]:
        """The tables by their names in MySQL."""
        return {table.names: table for table in self.tables.values()}


class TableSets:
    """The table sets of one sync; the driver writes them, its planner and tasks read them.

    `server`: the address of MySQL, in those that are written.
    """

    def __init__(self, checkpoint: Path, server: str = "") -> None:
        self._folder, self.server = checkpoint / _FOLDER, server
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

    def unread_since(self, number: int) -> frozenset[str]:
        """The targets in `unread` of all table sets after one."""
        later = range(number + 1, self.latest_number() + 1)
        return frozenset().union(*(self.get(one).unread for one in later))

    def add(
        self,
        tables: Iterable[FollowedTable],
        zone: str | None = None,
        unread: Collection[str] = (),
        created: Mapping[str, Shape] | None = None,
    ) -> TableSet:
        """Write the next table set; what is None is as in the latest one."""
        latest, by_id = self.latest(), {table.id: table for table in tables}
        number = latest.number + 1
        left = {table.full_name for table in latest.tables.values()}
        made = self._read[number] = TableSet(
            number,
            max([latest.next_id, *(int(id) + 1 for id in by_id)]),
            zone or latest.zone,
            by_id,
            latest.former | (left - {table.full_name for table in by_id.values()}),
            frozenset(unread),
            latest.created if created is None else created,
            self.server,
        )
        replace_json(self._folder / str(number), to_json(made))
        return made

    def drop_before(self, number: int) -> None:
        """Delete the table sets before one that no batch needs any more."""
        for name in os.listdir(self._folder):
            if name.isdigit() and int(name) < number:
                (self._folder / name).unlink(missing_ok=True)
