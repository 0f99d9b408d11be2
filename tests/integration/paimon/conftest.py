"""Tables that the Rust core writes, and the Java core beside them."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pypaimon import CatalogFactory, Schema
from pypaimon_rust.datafusion import PaimonCatalog
from tests.integration.paimon import java_rows

from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.java.sidecar import Sidecar
from streamhouse.paimon.storage.lock import commit_lock

SALES = pa.schema(
    [
        pa.field("country", pa.string(), nullable=False),
        pa.field("orders", pa.int64()),
        pa.field("revenue", pa.float64()),
    ]
)
SUMS = {
    "bucket": "2",
    "merge-engine": "aggregation",
    "fields.orders.aggregate-function": "sum",
    "fields.revenue.aggregate-function": "sum",
}


class Lake:
    """A warehouse in a folder, written by the Rust core as the queries do it."""

    def __init__(self, folder: Path, database: str = "shop") -> None:
        self.options = {"warehouse": str(folder)}
        self.folder = folder
        self.catalog = CatalogFactory.create(self.options)
        self.database = database
        self.catalog.create_database(database, True)

    def create(
        self,
        name: str,
        options: Mapping[str, str],
        schema: pa.Schema = SALES,
        keys: Sequence[str] = ("country",),
        partitions: Sequence[str] = (),
    ) -> str:
        self.catalog.create_table(
            f"{self.database}.{name}",
            Schema.from_pyarrow_schema(
                schema,
                partition_keys=list(partitions),
                primary_keys=list(keys),
                options=dict(options),
            ),
            False,
        )
        return f"{self.database}.{name}"

    def sales(self, name: str = "sales", **options: str) -> str:
        changed = {key.replace("_", "-"): value for key, value in options.items()}
        return self.create(name, {**SUMS, **changed})

    def table(self, name: str) -> Any:
        return PaimonCatalog(self.options).get_table(name)

    def commit(self, name: str, identifier: int, batch: pa.RecordBatch, user: str = "u") -> int:
        """Commit one batch; 1, or 0 when the identifier was committed before."""
        builder = self.table(name).new_stream_write_builder().with_commit_user(user)
        write = builder.new_write()
        write.write_arrow(batch)
        messages = write.prepare_commit(True, identifier)
        write.close()
        commit = builder.new_commit()
        with commit_lock(self.table(name).location()):
            done = int(commit.filter_and_commit({identifier: messages}))
        if not done:
            commit.abort(messages)
        commit.close()
        return done

    def rows(self, name: str, snapshot: int | None = None) -> list[dict[str, Any]]:
        options = {"scan.snapshot-id": str(snapshot)} if snapshot else None
        builder = self.table(name).new_read_builder(options)
        batches = builder.new_read().read(builder.new_scan().plan().splits())
        return [row for batch in batches for row in batch.to_pylist()]

    def snapshots(self, name: str) -> list[tuple[int, str]]:
        listed = self.table(name).list_snapshots()
        return sorted((snapshot.id(), snapshot.commit_kind()) for snapshot in listed)

    def snapshot_ids(self, name: str) -> list[int]:
        """The snapshots that are there, also while others expire."""
        data, _, branch = name.partition("$branch_")
        folder = Path(self.table(data).location())
        folder = folder / f"branch/branch-{branch}" if branch else folder
        return sorted(
            int(file.name.removeprefix("snapshot-"))
            for file in (folder / "snapshot").iterdir()
            if re.fullmatch(r"snapshot-\d+", file.name)
        )

    def latest(self, name: str) -> int:
        snapshot = self.table(name).latest_snapshot()
        return snapshot.id() if snapshot else 0


def sale(*rows: tuple[str, int, float]) -> pa.RecordBatch:
    columns = list(zip(*rows, strict=True))
    return pa.record_batch([pa.array(column) for column in columns], schema=SALES)


_numbers = itertools.count()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Sidecar]]:
    """One JVM for a file's tests that do nothing to it, and the folder of their tables."""
    folder = tmp_path_factory.mktemp("paimon") / "lake"
    with Sidecar({"warehouse": str(folder)}) as sidecar:
        yield folder, sidecar


@pytest.fixture
def lake(running: tuple[Path, Sidecar]) -> Lake:
    """A database of the test's own."""
    return Lake(running[0], f"shop_{next(_numbers)}")


@pytest.fixture
def make_sale() -> Any:
    return sale


@pytest.fixture
def java(running: tuple[Path, Sidecar]) -> Sidecar:
    """The Java core, whose JVM may run already; it must go on running."""
    return running[1]


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    """One for a file's tests, with the database `db`."""
    made = Warehouse(str(tmp_path_factory.mktemp("warehouse")))
    made.create_database("db")
    return made


@pytest.fixture(scope="module")
def utc_java(warehouse: Warehouse) -> Iterator[Sidecar]:
    """The Java core on `warehouse`, for rows that are compared as values."""
    with java_rows.utc_sidecar(warehouse.options) as sidecar:
        yield sidecar


@pytest.fixture
def own(lake: Lake) -> Iterator[Sidecar]:
    """A sidecar whose JVM has not started yet, and may be killed."""
    with Sidecar(lake.options) as sidecar:
        yield sidecar
