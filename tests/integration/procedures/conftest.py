"""Tables that procedures work on, and the Java core that reads them back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from tests.java_reads import java_rows

from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.write.commit import TableCommitter
from streamhouse.paimon.write.table_writer import TableWriter
from streamhouse.procedures import Context
from streamhouse.sql.plan import Column


@dataclass
class Lake:
    """A warehouse with one database, `db`, and the context of all calls."""

    context: Context
    made: int = 0

    @property
    def warehouse(self) -> Warehouse:
        return self.context.warehouse

    def table(
        self,
        columns: Mapping[str, str],
        keys: Sequence[str] = (),
        partitions: Sequence[str] = (),
        **options: str,
    ) -> str:
        """A new table; options with `__` for `.` and `_` for `-`."""
        self.made += 1
        name = f"t{self.made}"
        given = {key.replace("__", ".").replace("_", "-"): value for key, value in options.items()}
        self.warehouse.create_table(
            "db", name, [Column(*column) for column in columns.items()], keys, partitions, given
        )
        return f"db.{name}"

    def write(self, name: str, rows: Mapping[str, Sequence[Any]], user: str = "u") -> int:
        """Commit rows in a snapshot of their own; its id."""
        table = self.warehouse.table(name)
        identifier = (table.latest_snapshot_id() or 0) + 1
        arrays = [pa.array(rows[field.name], field.type) for field in table.arrow_schema]
        writer = TableWriter(self.warehouse.options, name, user)
        writer.write(pa.record_batch(arrays, schema=table.arrow_schema))
        messages = writer.prepare(identifier)
        writer.close()
        TableCommitter(self.warehouse.options, name, user).commit(identifier, messages)
        return self.latest(name)

    def latest(self, name: str) -> int:
        return self.warehouse.table(name).latest_snapshot_id() or 0

    def kinds(self, name: str) -> list[str]:
        """What each snapshot is, the newest first."""
        snapshots = self.warehouse.table(name).snapshots.newest_first()
        return [snapshot.commit_kind for snapshot in snapshots]

    def rows(self, name: str) -> list[dict[str, Any]]:
        """All rows, sorted; both cores must read the same."""
        ours = [row for batch in self.warehouse.table(name).read() for row in batch.to_pylist()]
        theirs = java_rows(self.context.sidecar, name).to_pylist()
        assert sorted(map(str, ours)) == sorted(map(str, theirs))
        return sorted(ours, key=str)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    warehouse = Warehouse(str(tmp_path_factory.mktemp("lake")))
    warehouse.create_database("db")
    with Context(warehouse) as context:
        yield Lake(context)
