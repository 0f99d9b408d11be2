"""The net change of a table is the difference of its two snapshots, or unknown."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pypaimon import CatalogFactory
from tests.unit.views.view_session import bag

from streamhouse.errors import StreamhouseError
from streamhouse.operators.scan import Scan
from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.storage.table_identity import Identity
from streamhouse.runtime.execute import execute
from streamhouse.runtime.views.net_change import UnknownChangeError, net_change
from streamhouse.source import Offset
from streamhouse.sql.plan import Column, TableInfo

_KINDS: tuple[tuple[str, dict[str, str], bool], ...] = (
    ("k, p", {"bucket": "2"}, True),
    ("k, p", {"bucket": "1", "changelog-producer": "input"}, True),
    ("k, p", {"bucket": "1", "sequence.field": "v"}, True),
    ("k, p", {"bucket": "1", "ignore-delete": "true"}, True),
    ("k, p", {"bucket": "1", "merge-engine": "partial-update"}, True),
    ("k, p", {"bucket": "1", "merge-engine": "aggregation", "fields.v.aggregate-function": "sum"},
     True),
    ("k, p", {"bucket": "1", "merge-engine": "first-row"}, True),
    ("k, p", {"bucket": "1", "deletion-vectors.enabled": "true"}, True),
    ("k", {"bucket": "-1"}, True),
    ("d, k", {"bucket": "1"}, False),
    ("", {}, True),
    ("", {"deletion-vectors.enabled": "true"}, True),
)  # fmt: skip
"""Primary key, options, and whether the table is partitioned by `p`."""


@pytest.mark.parametrize("kind", range(len(_KINDS)))
@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(1, 30))]
)
def test_net_changes(seed: int, kind: int, tmp_path: Path) -> None:
    warehouse = Warehouse(str(tmp_path / "warehouse"))
    warehouse.create_database("db")
    key, options, partitioned = _KINDS[kind]
    rng = random.Random(seed * 100 + kind)
    declared = f", PRIMARY KEY ({key}) NOT ENFORCED" if key else ""
    by = "PARTITIONED BY (p)" if partitioned else ""
    text = ", ".join(f"'{name}' = '{value}'" for name, value in options.items())
    execute(
        warehouse.options,
        f"CREATE TABLE db.t (k INT, p INT, d DOUBLE, v INT, s STRING{declared}) {by} "
        + (f"WITH ({text})" if text else ""),
    )
    states, known = [_position(warehouse)], 0
    for number in range(8):
        _change(rng, warehouse, bool(key), options, first=not number)
        states.append(_position(warehouse))
        start = rng.choice(states[-3:-1])
        known += _check(warehouse, start, states[-1], key)
    # Deletes from a table without a key are no APPEND.
    assert known >= (1 if key else 0)


def _check(warehouse: Warehouse, start: Offset, end: Offset, key: str) -> bool:
    table = warehouse.table("db.t")
    if table.latest_snapshot_id() is None or not end["snapshot"]:
        return False
    info = TableInfo(
        ("c", "db", "t"),
        tuple(Column(c.name, c.type) for c in table.columns),
        primary_key=tuple(key.split(", ")) if key else (),
    )
    columns = ("v", "k", "p", "d", "s") if key else ("v", "s")
    address = TableAddress(warehouse.options, "db.t", table.schema_id)
    try:
        change = net_change(Scan(info, "t", columns), address, start, end)
    except UnknownChangeError:
        return False
    rows = Counter(_rows(table, start, columns))
    added = [list(row.values()) for row in change.rows.to_pylist()]
    if change.keys is not None:
        keys = {repr(list(row.values())) for row in change.keys.to_pylist()}
        where = [columns.index(name) for name in info.primary_key]

        def has_changed(row: Any) -> bool:
            return repr([row[n] for n in where]) in keys

        rows = Counter({row: count for row, count in rows.items() if not has_changed(row)})
        added = [row for row in added if has_changed(row)]
    assert rows + bag(added) == _rows(table, end, columns)
    return True


def _rows(table: Table, position: Offset, columns: tuple[str, ...]) -> Counter[Any]:
    if not position["snapshot"]:
        return Counter()
    batches = table.read(list(columns), snapshot=position["snapshot"])
    return bag([list(row.values()) for batch in batches for row in batch.to_pylist()])


def _position(warehouse: Warehouse) -> Offset:
    table = warehouse.table("db.t")
    latest = table.latest_snapshot_id() or 0
    taken = table.snapshot(latest).time_ms if latest else 0
    return {"snapshot": latest, "time": taken, "table": Identity(table).digest}


def _change(
    rng: random.Random, warehouse: Warehouse, keyed: bool, options: dict[str, str], first: bool
) -> None:
    values = ", ".join(
        f"({rng.randint(0, 6)}, {rng.randint(0, 1)}, {rng.choice(('0.0', '-0.0', '1.5'))}, "
        f"{rng.choice(('CAST(NULL AS INT)', '1', '2'))}, '{rng.choice('ab')}')"
        for _ in range(rng.randint(1, 4))
    )
    insert = f"INSERT INTO db.t VALUES {values}"
    statements = {
        insert: 8,
        f"INSERT OVERWRITE db.t VALUES {values}": 1,
        f"DELETE FROM db.t WHERE k = {rng.randint(0, 6)}": 3,
        f"UPDATE db.t SET s = 'c' WHERE k = {rng.randint(0, 6)}": 2,
        "TRUNCATE TABLE db.t": 1,
        "rollback": 1,
    }
    (statement,) = rng.choices(list(statements), list(statements.values()))
    latest = warehouse.table("db.t").latest_snapshot_id()
    if first or latest is None:
        statement = insert
    if statement == "rollback":
        catalog = CatalogFactory.create(dict(warehouse.options))
        catalog.get_table("db.t").rollback_to(rng.randint(1, latest or 1))
        return
    try:
        execute(warehouse.options, statement)
    except StreamhouseError:
        # Some tables take no deletes.
        execute(warehouse.options, insert)
