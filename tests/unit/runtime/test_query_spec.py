"""What a query's specification says of its batches: one task, rows in memory, order of commits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import pytest
from tests.unit.runtime.test_batch_planner import ID, QUERY, Tables

from streamhouse.connectors.specs import SinkSpec
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.source import Source
from streamhouse.sql.plan import Column, LookupJoin, StreamQuery, TableInfo

COLUMNS = [Column("id", "INT NOT NULL"), Column("part", "INT NOT NULL"), Column("n", "INT")]
BOTH = {"id": "id", "part": "part"}
SUM = {"merge-engine": "aggregation", "fields.n.aggregate-function": "sum"}


@dataclass
class Changes:
    """A changelog whose partitions keep the rows of these columns together."""

    keyed_by: tuple[str, ...]
    ordered: bool = False
    changelog: bool = True


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    made = Tables(tmp_path)
    warehouse = Warehouse(made.options)
    for name, key, bucket in (("keyed", ["id", "part"], "2"), ("dynamic", ["id"], "-1")):
        warehouse.create_table("d", name, COLUMNS, key, options={"bucket": bucket})
    return made


def changing(passed: Mapping[str, str]) -> StreamQuery:
    """The query over a changelog, with columns that it passes on."""
    scan = replace(QUERY.scan, changelog=True)
    return replace(QUERY, scan=scan, rows=replace(QUERY.rows, passed=passed))


@pytest.mark.parametrize(
    ("target", "keyed_by", "passed", "one"),
    [
        ("keyed", ("id", "part"), BOTH, False),
        # The target's key has more columns than the source's.
        ("keyed", ("id",), BOTH, False),
        ("keyed", ("x", "y"), {"id": "x", "part": "y"}, False),
        # Two keys of the source can be one key of the target.
        ("keyed", ("id", "part"), {"id": "id"}, True),
        ("keyed", ("id", "n"), BOTH, True),
        ("keyed", (), BOTH, True),
        ("dynamic", ("id",), {"id": "id"}, True),
    ],
)
def test_tasks_may_share_what_keeps_keys_together(
    tables: Tables, target: str, keyed_by: tuple[str, ...], passed: Mapping[str, str], one: bool
) -> None:
    spec = replace(tables.spec, query=changing(passed), target=tables.address(target))
    assert spec.one_task(cast(Source, Changes(keyed_by))) == one


def test_rows_that_are_looked_up_stay_in_one_task(tables: Tables) -> None:
    dim = TableInfo(("c", "d", "dim"), ID, primary_key=("id",))
    lookup = LookupJoin(dim, "dim_0", ("id",), ("id",), False)
    query = replace(changing(BOTH), lookups=(lookup,))
    address = tables.address("keyed")
    spec = replace(tables.spec, query=query, target=address, lookups=(address,))
    assert spec.one_task(cast(Source, Changes(("id",))))


def test_batches_may_be_large_if_tasks_write_rows_as_they_read_them(tables: Tables) -> None:
    Warehouse(tables.options).create_table("d", "appended", COLUMNS, [], options={"bucket": "-1"})
    rows = tables.address("appended")
    plain = replace(tables.spec, query=QUERY, target=rows)
    assert not plain.keeps_rows()
    assert replace(plain, target=tables.address("keyed")).keeps_rows()
    assert replace(plain, sink=SinkSpec("print", {}, ())).keeps_rows()
    assert replace(plain, query=tables.spec.query).keeps_rows()
    assert replace(plain, dead_letters=rows).keeps_rows()


@pytest.mark.parametrize(
    ("primary_key", "options", "commutes"),
    [
        ([], {"bucket": "-1"}, True),
        (["id"], {}, False),
        (["id"], SUM, True),
        (["id"], {**SUM, "aggregation.remove-record-on-delete": "false"}, True),
        # A -D that somebody else commits removes what was merged before it, and nothing after it.
        (["id"], {**SUM, "aggregation.remove-record-on-delete": "true"}, False),
        (["id"], {**SUM, "fields.n.aggregate-function": "last_value"}, False),
    ],
)
def test_commits_commute_if_their_order_changes_no_row(
    tables: Tables, primary_key: list[str], options: dict[str, str], commutes: bool
) -> None:
    columns = [Column("id", "INT", nullable=False), Column("n", "INT")]
    options = {"bucket": "1", **options}
    Warehouse(tables.options).create_table("d", "written", columns, primary_key, options=options)
    assert replace(tables.spec, target=tables.address("written")).commutes is commutes
