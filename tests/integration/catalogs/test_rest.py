"""A REST catalog: its server names the tables, and decides which commit is the next snapshot."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path

import pyarrow as pa
import pytest
from tests.integration.catalogs.rest_server import RestServer
from tests.integration.catalogs.test_jdbc import COLUMNS, ids, write
from tests.java_reads import java_rows
from typer.testing import CliRunner

from streamhouse.cli.main import build
from streamhouse.errors import StreamhouseError
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.java.sidecar import Sidecar
from streamhouse.paimon.write.commit import TableCommitter
from streamhouse.paimon.write.table_writer import TableWriter
from streamhouse.sql.plan import Column
from streamhouse.sql.schema_changes import AddColumn

WRITERS, COMMITS = 3, 6


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RestServer]:
    folder = tmp_path / "lake"
    folder.mkdir()
    with RestServer(folder) as server:
        yield server


@pytest.fixture
def warehouse(server: RestServer) -> Warehouse:
    """The warehouse, with an empty table `shop.t`."""
    warehouse = Warehouse(server.options)
    warehouse.create_database("shop")
    warehouse.create_table("shop", "t", COLUMNS, ["id"], options={"bucket": "1"})
    return warehouse


def test_all_cores_resolve_the_same_table(server: RestServer, warehouse: Warehouse) -> None:
    from pypaimon import CatalogFactory

    write(warehouse, "shop.t", [1, 2])
    with Sidecar(warehouse.options) as java:
        assert java.compact("shop.t", full=True)
        assert sorted(java_rows(java, "shop.t")["id"].to_pylist()) == [1, 2]
    write(warehouse, "shop.t", [3])
    assert (ids(warehouse.table("shop.t")), server.commits) == ([1, 2, 3], 3)
    official = CatalogFactory.create(dict(warehouse.options))
    assert official.list_tables("shop") == warehouse.tables("shop") == ["t"]
    assert str(official.get_table("shop.t").table_path) == warehouse.table("shop.t").location
    warehouse.alter_table("shop.t", AddColumn(Column("note", "STRING")))
    assert [column.name for column in warehouse.table("shop.t").columns] == ["id", "name", "note"]
    warehouse.rename_table("shop.t", "shop.u")
    assert warehouse.tables("shop") == ["u"]
    warehouse.drop_table("shop", "u")
    assert warehouse.tables("shop") == []


def test_commits_at_once_need_no_lock(
    server: RestServer, warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamhouse.paimon.write.commit.commit_lock", nullcontext)

    def work(first: int) -> None:
        user = str(uuid.uuid4())
        committer = TableCommitter(warehouse.options, "shop.t", user)
        for number in range(COMMITS):
            writer = TableWriter(warehouse.options, "shop.t", user)
            columns = {"id": pa.array([first + number], pa.int32()), "name": ["x"]}
            writer.write(pa.record_batch(columns))
            messages = writer.prepare(number)
            writer.close()
            assert committer.commit(number, messages)

    with ThreadPoolExecutor(WRITERS) as pool:
        list(pool.map(work, range(0, 100 * WRITERS, 100)))
    expected = [100 * one + number for one in range(WRITERS) for number in range(COMMITS)]
    assert (ids(warehouse.table("shop.t")), server.commits) == (expected, WRITERS * COMMITS)


def test_the_command_line_reads_it(server: RestServer, warehouse: Warehouse) -> None:
    write(warehouse, "shop.t", [1, 2])
    options = dict(server.options)
    lake = options.pop("warehouse")
    flags = [word for pair in options.items() for word in ("--option", "=".join(pair))]
    command = ["query", "SELECT COUNT(*) AS n FROM shop.t", "--warehouse", lake, *flags]
    ended = CliRunner().invoke(build(command), [*command, "--format", "json"])
    assert (ended.exit_code, json.loads(ended.stdout)) == (0, [{"n": 2}])


def test_a_warehouse_has_a_name_of_its_own(server: RestServer, warehouse: Warehouse) -> None:
    named = Warehouse({**server.options, "rest.warehouse": "prod"})
    assert named.tables("shop") == ["t"]


def test_a_wrong_token_is_reported(server: RestServer) -> None:
    options = {**server.options, "token": "hushhush"}
    with pytest.raises(StreamhouseError, match="cannot be read: .*token") as raised:
        Warehouse(options).databases()
    assert "hushhush" not in str(raised.value)
