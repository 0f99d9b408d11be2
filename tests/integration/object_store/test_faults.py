"""Faults of the store lose and duplicate no row; a plain model has the expected ones."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from tests.integration.object_store.faulty_proxy import Choose, Fault, FaultyProxy, Request
from tests.java_reads import java_rows

from streamhouse.demo.s3_server import S3Server
from streamhouse.errors import StreamhouseError
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.java.sidecar import Sidecar
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.write.commit import TableCommitter
from streamhouse.paimon.write.table_writer import TableWriter
from streamhouse.sql.plan import Column

USER = "0f8fad5b-d9cb-469f-a165-70867728950e"
TRIES = 30


@pytest.fixture
def warehouse(lake: str, s3: S3Server, proxy: FaultyProxy) -> Warehouse:
    """A warehouse behind the proxy, with an empty table `shop.sums`."""
    warehouse = Warehouse({"warehouse": lake, **s3.options(proxy.url)})
    warehouse.create_database("shop")
    warehouse.create_table(
        "shop",
        "sums",
        [Column("id", "INT", False), Column("n", "BIGINT")],
        ["id"],
        options={
            "bucket": "1",
            "merge-engine": "aggregation",
            "fields.n.aggregate-function": "sum",
        },
    )
    return warehouse


class Batches:
    """Writes batches as a query does: what fails is repeated under the same number."""

    def __init__(self, warehouse: Warehouse) -> None:
        self._warehouse = warehouse
        self.errors: list[str] = []
        self.model: dict[int, int] = {}

    def write(self, number: int, rows: dict[int, int]) -> None:
        for _ in range(TRIES):
            try:
                self._attempt(number, rows)
                break
            except StreamhouseError as error:
                self.errors.append(str(error))
        else:
            raise AssertionError(f"batch {number} failed {TRIES} times: {self.errors[-TRIES:]}")
        for key, value in rows.items():
            self.model[key] = self.model.get(key, 0) + value

    def _attempt(self, number: int, rows: dict[int, int]) -> None:
        committer = TableCommitter(self._warehouse.options, "shop.sums", USER)
        if committer.committed(number):
            return
        writer = TableWriter(self._warehouse.options, "shop.sums", USER)
        schema = pa.schema([("id", pa.int32()), ("n", pa.int64())])
        try:
            columns = {"id": list(rows), "n": list(rows.values())}
            writer.write(pa.RecordBatch.from_pydict(columns, schema=schema))
            messages = writer.prepare(number)
        finally:
            writer.close()
        committer.commit(number, messages)

    def content(self) -> dict[int, int]:
        rows = read(self._warehouse.table("shop.sums"))
        return dict(zip(rows["id"].to_pylist(), rows["n"].to_pylist(), strict=True))


def read(table: Table) -> pa.Table:
    return pa.Table.from_batches(table.read(), table.arrow_schema)


SNAPSHOT_FAULTS = [fault for fault in Fault if fault is not Fault.SLOW]


@pytest.mark.parametrize("fault", SNAPSHOT_FAULTS, ids=lambda fault: fault.name.lower())
def test_a_fault_at_the_snapshot_itself(
    warehouse: Warehouse, proxy: FaultyProxy, fault: Fault
) -> None:
    batches = Batches(warehouse)
    batches.write(0, {1: 1})
    left = {"PUT": 12, "HEAD": 2}

    def choose(request: Request) -> Fault | None:
        name = request.path.rpartition("/")[2]
        if "/snapshot/" not in request.path or name not in ("snapshot-2", "LATEST"):
            return None
        if left.get(request.method, 0) == 0:
            return None
        left[request.method] -= 1
        return fault

    proxy.choose = choose
    batches.write(1, {1: 10, 2: 20})
    batches.write(2, {2: 1})
    proxy.choose = lambda request: None
    assert proxy.injected
    assert batches.content() == batches.model == {1: 11, 2: 21}


@pytest.mark.parametrize("seed", [1])
def test_faults_anywhere(warehouse: Warehouse, proxy: FaultyProxy, seed: int) -> None:
    check_history(warehouse, proxy, seed, 8)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(2, 12))
def test_many_faults_anywhere(warehouse: Warehouse, proxy: FaultyProxy, seed: int) -> None:
    # A batch makes 75 requests, each of some 20 ms by this server, and is repeated as a whole.
    check_history(warehouse, proxy, seed, 20)


def check_history(warehouse: Warehouse, proxy: FaultyProxy, seed: int, count: int) -> None:
    chance = random.Random(seed)
    batches = Batches(warehouse)
    weights = [4, 4, 4, 4, 4, 1]

    def at_rate(rate: float) -> Choose:
        return lambda request: (
            chance.choices(list(Fault), weights)[0] if chance.random() < rate else None
        )

    with Sidecar(warehouse.options) as java:
        java.start()
        for number in range(count):
            proxy.choose = at_rate(0.05)
            batches.write(number, {chance.randrange(5): chance.randrange(100) for _ in range(3)})
            if number % 6 == 5:
                # The Java core waits longer and longer before it repeats a request.
                proxy.choose = at_rate(0.02)
                try:
                    java.compact("shop.sums", full=chance.random() < 0.5)
                except StreamhouseError as error:
                    batches.errors.append(str(error))
            proxy.choose = at_rate(0.0)
            assert batches.content() == batches.model, (number, proxy.injected[-20:])
        rows = java_rows(java, "shop.sums")
    assert dict(zip(*rows.to_pydict().values(), strict=True)) == batches.model
    assert len(proxy.injected) > count


def test_a_dead_store_is_one_line(lake: str, s3: S3Server) -> None:
    options = {"warehouse": lake, **s3.options("http://127.0.0.1:9")}
    with pytest.raises(StreamhouseError, match="nothing answers at http://127.0.0.1:9"):
        Warehouse(options).databases()
