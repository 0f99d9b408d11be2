"""Tables with minimal retention expire all the time, under queries that are killed."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from pypaimon import CatalogFactory
from pypaimon.schema.schema_change import SchemaChange
from tests.integration.runtime import revenue
from tests.integration.runtime.conftest import Dying, Shop
from tests.java_reads import java_rows
from tests.waiting import DEADLINE_S, until

from streamhouse.errors import StreamhouseError
from streamhouse.paimon.changelog.consumers import Consumers
from streamhouse.paimon.java.sidecar import Sidecar
from streamhouse.paimon.maintenance.expiry import expire
from streamhouse.paimon.write.commit import TableCommitter
from streamhouse.paimon.write.table_writer import TableWriter
from streamhouse.runtime.audit.audit import audit
from streamhouse.runtime.state import lineage as lineage_module

pytestmark = pytest.mark.usefixtures("in_threads")

FEW = {
    "snapshot.num-retained.min": "1",
    "snapshot.num-retained.max": "3",
    "snapshot.time-retained": "1 s",
}
MANY = {"snapshot.num-retained.max": "1000000", "snapshot.time-retained": "1 h"}
TABLES = ("orders", "customers", "country_sales")
BESIDE = ("country_sales__pending", "country_sales__unmatched", "country_sales__lineage")


def keep(shop: Shop, tables: tuple[str, ...], options: Mapping[str, str]) -> None:
    catalog: Any = CatalogFactory.create(dict(shop.warehouse.options))
    changes = [SchemaChange.set_option(key, value) for key, value in options.items()]
    for table in tables:
        catalog.alter_table(f"default.{table}", changes, False)


@contextmanager
def expired(shop: Shop, java: Sidecar) -> Iterator[list[int]]:
    """All that the options allow to go goes at once, again and again, by another process.

    Gives the numbers of snapshots that went, round by round.
    """
    stopped, rounds, failures = threading.Event(), list[int](), list[BaseException]()

    def run() -> None:
        while not stopped.wait(0.3):
            gone = 0
            for name in (*TABLES, *BESIDE):
                try:
                    gone += expire(java, shop.warehouse.table(f"default.{name}"))
                except StreamhouseError:
                    # The pipeline's own maintenance took the same snapshots away.
                    rounds.append(0)
                except BaseException as error:  # noqa: BLE001  # handed to the test's thread
                    failures.append(error)
                    return
            rounds.append(gone)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield rounds
    finally:
        stopped.set()
        thread.join(DEADLINE_S)
        if failures:
            raise failures[0]


def test_kills_during_constant_expiry_change_nothing(
    shop: Shop, dying: Dying, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, fast = revenue.whole(12_000, rate=600), revenue.whole(15_000, rate=100_000)
    shop.do(revenue.TABLES + revenue.CUSTOMERS)
    with dying(slow, "target-committed:2:default.country_sales"):
        pass
    keep(shop, (*TABLES, *BESIDE), FEW)
    with Sidecar(shop.warehouse.options) as java:
        with expired(shop, java) as rounds:
            # What the dead query needs stays, however long it is expired.
            _change_customers(shop, 0)
            _until_more(rounds, 2)
            run = shop.start(slow, spark=False)
            run.until(partial(_expired, shop))
            time.sleep(random.Random(4).uniform(0.0, 1.0))
            run.kill()
            _change_customers(shop, 5)
            _until_more(rounds, 2)
        # From here on all is kept, and more orders come: there is something left to prove.
        keep(shop, (*TABLES, *BESIDE), MANY)
        shop.settle_here(fast)
        revenue.check(shop, orders=15_000, expired=True)
        for name in (*TABLES, *BESIDE):
            table = shop.warehouse.table(f"default.{name}")
            rust = sorted(map(str, (row for batch in table.read() for row in batch.to_pylist())))
            assert sorted(map(str, java_rows(java, table.identifier).to_pylist())) == rust
        _check_audit(shop)
        monkeypatch.setattr(lineage_module, "LEAST", 1)
        _age_lineage(shop)
        _check_audit(shop)
    held = Consumers(shop.warehouse.table("default.country_sales")).all()
    query = revenue.checkpoint(shop, "country_sales").query_id()
    assert [one.id for one in held] == [f"streamhouse-{query}"]


def _check_audit(shop: Shop) -> None:
    """The audit proves what can still be proved, says from where on, and finds what is wrong."""
    options, view = shop.warehouse.options, "default.country_sales"
    result = audit(options, view)
    assert result.equal and result.from_snapshot > 1, result
    assert 0 < result.batches
    table = shop.warehouse.table(view)
    assert result.from_snapshot >= (table.earliest_snapshot_id() or 0)
    assert audit(options, "default.orders").equal


def _age_lineage(shop: Shop) -> None:
    """Remove the rows of batches before those that the view still has commits of."""
    view = shop.warehouse.table("default.country_sales")
    user, name = revenue.checkpoint(shop, "country_sales").query_id(), f"{view.identifier}__lineage"
    before = lineage_module.dead_before(view, user)
    assert before is not None and before > 0
    removed = lineage_module.removals(shop.warehouse.table(name), user, before)
    assert removed is not None
    writer = TableWriter(shop.warehouse.options, name, user)
    for batch in removed.to_batches():
        writer.write(batch)
    messages = writer.prepare(10**9)
    writer.close()
    assert TableCommitter(shop.warehouse.options, name, user).commit(10**9, messages)


def _until_more(counts: list[int], more: int) -> None:
    goal = len(counts) + more
    until(lambda: len(counts) >= goal)


def _expired(shop: Shop) -> bool:
    """Whether the first snapshots of the source and of the target are gone."""
    tables = [shop.warehouse.table(f"default.{name}") for name in ("orders", "country_sales")]
    return all((table.earliest_snapshot_id() or 0) > 1 for table in tables)


def _change_customers(shop: Shop, first: int) -> None:
    """Other versions of the table that is looked up, with the same rows."""
    rows = [{"id": i, "name": f"c{i}", "country": c} for i, c in enumerate(revenue.COUNTRIES, 1)]
    options, name = shop.warehouse.options, "default.customers"
    schema = shop.warehouse.table(name).arrow_schema
    for number in range(first, first + 5):
        writer = TableWriter(options, name, "crm")
        writer.write(pa.RecordBatch.from_pylist(rows, schema=schema))
        messages = writer.prepare(number)
        writer.close()
        assert TableCommitter(options, name, "crm").commit(number, messages)
