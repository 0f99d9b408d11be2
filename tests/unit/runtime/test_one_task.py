"""A batch is one task if several could reorder changes; and which queries keep all its rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import pytest
from tests.unit.runtime.test_batch_planner import ID, Tables

from streamhouse.connectors.specs import SinkSpec
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.source import Source
from streamhouse.sql.plan import Column, LookupJoin, TableInfo

COLUMNS = [Column("id", "INT NOT NULL"), Column("part", "INT NOT NULL"), Column("n", "INT")]
BOTH = {"id": "id", "part": "part"}


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
    query = replace(tables.spec.query, changelog=True, passed=passed)
    spec = replace(
        tables.spec, query=query, target=tables.address(target), pending=None, unmatched=None
    )
    assert spec.one_task([cast(Source, Changes(keyed_by))]) == one
    # Each part of a UNION ALL must keep its keys.
    others: list[Any] = [Changes(keyed_by), Changes(())]
    assert spec.one_task(others)


def test_rows_that_are_looked_up_stay_in_one_task(tables: Tables) -> None:
    dim = TableInfo(("c", "d", "dim"), ID, primary_key=("id",))
    lookup = LookupJoin(dim, "dim_0", ("id",), ("id",), False)
    query = replace(tables.spec.query, changelog=True, passed=BOTH, lookups=(lookup,))
    address = tables.address("keyed")
    spec = replace(tables.spec, query=query, target=address, lookups=(address,))
    assert spec.one_task([cast(Source, Changes(("id",)))])


def test_batches_may_be_large_if_tasks_write_rows_as_they_read_them(tables: Tables) -> None:
    Warehouse(tables.options).create_table("d", "appended", COLUMNS, [], options={"bucket": "-1"})
    rows = tables.address("appended")
    plain = replace(tables.spec, target=rows, pending=None, unmatched=None)
    assert not plain.keeps_rows()
    assert replace(plain, target=tables.address("keyed")).keeps_rows()
    assert replace(plain, sink=SinkSpec("print", {}, ())).keeps_rows()
    assert replace(plain, pending=rows, unmatched=rows).keeps_rows()
    assert replace(plain, dead_letters=rows).keeps_rows()
