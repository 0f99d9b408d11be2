"""Tables with `ignore-delete` have no deletes in their files, or are not read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pypaimon import CatalogFactory, Schema
from pypaimon.schema.schema_change import SchemaChange

from streamhouse.errors import OptionError, TableError
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.runtime.execute import execute

SUMS = "'merge-engine' = 'aggregation', 'fields.v.aggregate-function' = 'sum'"
ACROSS = "CREATE TABLE d.t (k INT, p INT, v INT, PRIMARY KEY (k) NOT ENFORCED) PARTITIONED BY (p)"


@pytest.fixture
def lake(tmp_path: Path) -> str:
    execute(str(tmp_path), "CREATE DATABASE d")
    return str(tmp_path)


def rows(lake: str) -> list[tuple[Any, ...]]:
    read = Warehouse(lake).table("d.t").read()
    return sorted(tuple(row.values()) for batch in read for row in batch.to_pylist())


def make(lake: str, options: str = "'bucket' = '1'") -> None:
    execute(lake, f"CREATE TABLE d.t (k INT PRIMARY KEY NOT ENFORCED, v INT) WITH ({options})")
    execute(lake, "INSERT INTO d.t VALUES (1, 1), (2, 2)")


def set_by_another_engine(lake: str, option: str) -> None:
    changes = [SchemaChange.set_option(option, "true")]
    CatalogFactory.create({"warehouse": lake}).alter_table("d.t", changes, False)


def test_deletes_are_not_ignored_while_files_have_some(lake: str) -> None:
    make(lake)
    execute(lake, "DELETE FROM d.t WHERE k = 1")
    for option in ("ignore-delete", "deduplicate.ignore-delete"):
        with pytest.raises(OptionError, match=r"bring back .* CALL sys.compact\('d.t'\)"):
            execute(lake, f"ALTER TABLE d.t SET ('{option}' = 'true')")
    assert rows(lake) == [(2, 2)]


def test_deletes_are_ignored_from_the_time_on_that_files_have_none(lake: str) -> None:
    make(lake)
    execute(lake, "ALTER TABLE d.t SET ('ignore-delete' = 'true')")
    execute(lake, "INSERT INTO d.t VALUES (2, 3)")
    assert rows(lake) == [(1, 1), (2, 3)]


def test_sums_apply_deletes_despite_the_option(lake: str) -> None:
    make(lake, f"'bucket' = '1', {SUMS}, 'changelog-producer' = 'input'")
    execute(lake, "ALTER TABLE d.t SET ('ignore-delete' = 'true')")
    assert rows(lake) == [(1, 1), (2, 2)]


@pytest.mark.parametrize("option", ["ignore-delete", "deduplicate.ignore-delete"])
def test_a_table_whose_deletes_another_engine_ignores_is_not_read(lake: str, option: str) -> None:
    make(lake)
    execute(lake, "DELETE FROM d.t WHERE k = 1")
    set_by_another_engine(lake, option)
    with pytest.raises(TableError, match=r"1 delete in its files .* CALL sys.compact\('d.t'\)"):
        rows(lake)


def test_a_key_that_moves_cannot_keep_its_old_row(lake: str) -> None:
    with pytest.raises(TableError, match="'ignore-delete' keeps it there as well"):
        execute(lake, f"{ACROSS} WITH ('ignore-delete' = 'true')")
    execute(lake, ACROSS)
    with pytest.raises(TableError, match="'ignore-delete' keeps it there as well"):
        execute(lake, "ALTER TABLE d.t SET ('ignore-delete' = 'true')")


def test_a_table_of_another_engine_whose_moved_rows_stay_is_not_written(lake: str) -> None:
    import pyarrow as pa

    fields = pa.schema([pa.field("k", pa.int32(), nullable=False), ("p", pa.int32())])
    schema = Schema.from_pyarrow_schema(fields, ["p"], ["k"], {"ignore-delete": "true"})
    CatalogFactory.create({"warehouse": lake}).create_table("d.t", schema, False)
    with pytest.raises(TableError, match="a key could have several rows; create a table"):
        execute(lake, "INSERT INTO d.t VALUES (1, 1)")
