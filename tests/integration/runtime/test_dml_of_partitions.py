"""UPDATE and DELETE of partitions, of tables whose newest rows are invisible until compaction."""

from __future__ import annotations

import random
from typing import TypeAlias

import pyarrow as pa
import pytest
from tests.integration.runtime.conftest import Shop

import streamhouse
from streamhouse.connectors.paimon.connector import sink_writer
from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.paimon.java.sidecar import Sidecar
from streamhouse.paimon.maintenance.purge import Purge
from streamhouse.paimon.storage.lock import commit_lock
from streamhouse.paimon.write.commit import TableCommitter

TABLES = {
    "hidden": "'bucket' = '2', 'deletion-vectors.enabled' = 'true'",
    "merged": "'bucket' = '2'",
    "append": "'bucket' = '-1'",
}
Rows: TypeAlias = dict[tuple[str, int], int]
DAYS = ("2026-01-01", "2026-01-02", "2026-01-03", "__DEFAULT_PARTITION__")


def _add(address: TableAddress, batch: int, rows: Rows, column: str = "day") -> None:
    """Commit rows as level 0 files."""
    table = address.open()
    records = [{column: day, "k": k, "v": v} for (day, k), v in rows.items()]
    messages = sink_writer(address, "w", batch).write_all(
        [pa.RecordBatch.from_pylist(records, schema=table.arrow_schema)]
    )
    assert TableCommitter(address.warehouse, address.identifier, "w").commit(batch, messages)


def _condition(
    chance: random.Random, name: str, model: Rows, step: int
) -> tuple[str, set[tuple[str, int]]]:
    """A condition, and the keys of the rows for which it holds."""
    day, k = chance.choice(DAYS), chance.randrange(8)
    new = {number for (_, number), v in model.items() if v == step}
    text, holds = chance.choice(
        [
            (f"day = '{day}'", [d == day for d, _ in model]),
            (f"'{day}' = day AND k < {k}", [d == day and n < k for d, n in model]),
            (f"day > '{day}'", [d > day for d, _ in model]),
            (f"v = {step - 1}", [v == step - 1 for v in model.values()]),
            (
                f"day = '{day}' AND k IN (SELECT k FROM {name} WHERE v = {step})",
                [d == day and n in new for d, n in model],
            ),
        ]
    )
    return text, {key for key, held in zip(model, holds, strict=True) if held}


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize(
    "seed", [7, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(8, 18))]
)
def test_changes_of_partitions_are_those_of_a_model(shop: Shop, name: str, seed: int) -> None:
    key = "" if name == "append" else ", PRIMARY KEY (day, k) NOT ENFORCED"
    shop.do(
        f"CREATE TABLE {name} (day STRING, k INT, v INT{key}) PARTITIONED BY (day) "
        f"WITH ({TABLES[name]});"
    )
    address = TableAddress(shop.warehouse.options, f"default.{name}")
    chance, model = random.Random(seed), Rows()
    for step in range(12):
        rows = {
            (chance.choice(DAYS[:3]), chance.randrange(8) + (100 * step if not key else 0)): step
            for _ in range(6)
        }
        _add(address, step, rows)
        model |= rows
        where, changed = _condition(chance, name, model, step)
        if chance.random() < 0.5:
            streamhouse.execute(
                shop.warehouse.options, f"UPDATE {name} SET v = v + 50 WHERE {where}"
            )
            model |= {row: model[row] + 50 for row in changed}
        else:
            streamhouse.execute(shop.warehouse.options, f"DELETE FROM {name} WHERE {where}")
            model = {row: v for row, v in model.items() if row not in changed}
    with Sidecar(address.warehouse) as java:
        java.compact(address.identifier, full=True)
    assert {(row["day"], row["k"]): row["v"] for row in shop.rows(name)} == model


@pytest.mark.parametrize(("column", "value"), [("a:b", "x"), ("day", "x=1/2"), ("day", "ü 1")])
def test_hidden_rows_are_found_in_folders_of_any_name(shop: Shop, column: str, value: str) -> None:
    shop.do(
        f"CREATE TABLE t (`{column}` STRING, k INT, v INT, "
        f"PRIMARY KEY (`{column}`, k) NOT ENFORCED) "
        f"PARTITIONED BY (`{column}`) WITH ({TABLES['hidden']});"
    )
    address = TableAddress(shop.warehouse.options, "default.t")
    _add(address, 1, {(value, 1): 1, ("other", 1): 1}, column)
    update = f"UPDATE t SET v = v + 50 WHERE `{column}` = '{value}'"
    streamhouse.execute(shop.warehouse.options, update)
    assert {row[column]: row["v"] for row in shop.rows("t")}[value] == 51


def test_a_purge_of_a_partition_leaves_the_others(shop: Shop) -> None:
    shop.do(
        "CREATE TABLE t (day STRING, k INT, v INT, PRIMARY KEY (day, k) NOT ENFORCED) "
        f"PARTITIONED BY (day) WITH ({TABLES['hidden']});"
    )
    address = TableAddress(shop.warehouse.options, "default.t")
    _add(address, 1, {(day, k): k for day in DAYS for k in range(4)})
    assert shop.rows("t") == []
    with Sidecar(address.warehouse) as java, commit_lock(address.open().location):
        Purge(java, address.identifier).run({}, {"day": DAYS[1]})
    assert {row["day"] for row in shop.rows("t")} == {DAYS[1]}
