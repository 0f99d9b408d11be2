"""Pipelines and commands over a warehouse on S3."""

from __future__ import annotations

import json
import random
import signal
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest
from tests.integration.object_store.faulty_proxy import Fault, FaultyProxy
from tests.integration.runtime.conftest import Run
from typer.testing import CliRunner

from streamhouse.cli.main import build
from streamhouse.demo.s3_server import SECRET_KEY, S3Server
from streamhouse.errors import StreamhouseError
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.storage.object_store import s3_client
from streamhouse.runtime.state.checkpoint import Checkpoint, checkpoints_of
from streamhouse.runtime.state.checkpoint_registry import (
    register_checkpoint,
    registered_checkpoints,
    unregister_checkpoints,
)

SCRIPT = """
SET 'pipeline.name' = 'sales';
CREATE DATABASE IF NOT EXISTS shop; USE shop;
CREATE TEMPORARY TABLE made (id BIGINT, customer INT, price INT) WITH (
  'connector' = 'datagen', 'number-of-rows' = '3000', 'fields.id.kind' = 'sequence',
  'fields.id.start' = '1', 'fields.id.end' = '3000', 'fields.customer.min' = '1',
  'fields.customer.max' = '5', 'fields.price.min' = '2', 'fields.price.max' = '2');
CREATE TABLE IF NOT EXISTS orders (id BIGINT, customer INT, price INT) WITH ('bucket' = '-1');
CREATE TABLE IF NOT EXISTS spending (
  customer INT PRIMARY KEY NOT ENFORCED, orders BIGINT, total BIGINT) WITH (
  'bucket' = '1', 'merge-engine' = 'aggregation', 'changelog-producer' = 'lookup',
  'fields.orders.aggregate-function' = 'sum', 'fields.total.aggregate-function' = 'sum');
CREATE VIEW IF NOT EXISTS large AS SELECT * FROM spending WHERE orders > 0;
INSERT INTO orders SELECT id, customer, price FROM made;
INSERT INTO spending SELECT customer, 1, price FROM orders;
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "sales.sql"
    path.write_text(SCRIPT)
    return path


def command(*arguments: str, code: int = 0) -> str:
    ended = CliRunner().invoke(build(arguments), arguments)
    assert ended.exit_code == code, (arguments, ended.output, ended.exception)
    return ended.stdout


def rows(lake: str, sql: str) -> list[dict[str, object]]:
    text = command("query", sql, "--warehouse", lake, "--format", "json")
    found: list[dict[str, object]] = json.loads(text)
    return found


def run(folder: Path, arguments: Sequence[str]) -> str:
    """The notices of a run that must succeed; tests/spark/test_paimon_s3.py has Spark."""
    ended = Run(folder, ["run", *arguments], {}, spark=False).wait()
    assert ended.code == 0, ended.err
    assert SECRET_KEY not in ended.out + ended.err
    return ended.err


def test_a_pipeline_and_all_commands(
    lake: str, script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = [str(script), "--warehouse", lake, "--until-caught-up"]
    notices = run(tmp_path, arguments)
    assert f"in {checkpoints_of(lake)}; --checkpoints DIR sets another" in notices
    totals = "SELECT SUM(orders) AS n, SUM(total) AS total FROM shop.large"
    assert rows(lake, totals) == [{"n": 3000, "total": 6000}]
    assert rows(lake, "SELECT COUNT(DISTINCT id) AS n FROM shop.orders") == [{"n": 3000}]

    # On another machine, with all computed anew.
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another machine"))
    run(tmp_path, [*arguments, "--from-scratch"])
    assert rows(lake, totals) == [{"n": 3000, "total": 6000}]

    (status,) = json.loads(command("pipelines", "--warehouse", lake, "--json"))["pipelines"]
    assert (status["name"], status["state"]) == ("sales", "stopped")
    command("audit", "shop.spending", "--warehouse", lake)
    command("call", "sys.compact('shop.orders')", "--warehouse", lake)
    before = Warehouse(lake).table("shop.orders").earliest_snapshot_id()
    call = "sys.expire_snapshots(`table` => 'shop.orders', retain_max => 1)"
    command("call", call, "--warehouse", lake)
    table = Warehouse(lake).table("shop.orders")
    assert before == 1 and (table.earliest_snapshot_id() or 0) > 1
    assert rows(lake, "SELECT COUNT(DISTINCT id) AS n FROM shop.orders") == [{"n": 3000}]
    into = tmp_path / "files"
    export = ["export", "shop.spending", "--to", str(into), "--warehouse", lake, "--format", "csv"]
    command(*export)
    assert len((into / "shop.spending.csv").read_text().splitlines()) == 6
    watch = Run(tmp_path, ["watch", "shop.spending", "--warehouse", lake], {}, spark=False)
    watch.until(lambda: "customer" in watch.out)
    watch.signal(signal.SIGINT)
    assert watch.wait().code == 130


@pytest.mark.soak
@pytest.mark.parametrize("fault", [Fault.REFUSED, Fault.CUT_BEFORE, Fault.CUT_AFTER])
def test_a_pipeline_outlives_outages_of_the_store(
    lake: str, tmp_path: Path, proxy: FaultyProxy, fault: Fault
) -> None:
    path = tmp_path / "sales.sql"
    slow = "'number-of-rows' = '60000', 'rows-per-second' = '500'"
    text = SCRIPT.replace("'number-of-rows' = '3000'", slow)
    path.write_text(text.replace("'fields.id.end' = '3000'", "'fields.id.end' = '60000'"))
    arguments = ["run", str(path), "--warehouse", lake, "--until-caught-up"]
    pipeline = Run(tmp_path, arguments, {"AWS_ENDPOINT_URL_S3": proxy.url})
    table, chance = Warehouse(lake), random.Random(fault.name)

    def commits(least: int = 0) -> int:
        known = table.exists("shop", "spending")
        found = table.table("shop.spending").latest_snapshot_id() or 0 if known else 0
        return found if found >= least else 0

    for _ in range(3):
        pipeline.until(partial(commits, commits() + 3))
        time.sleep(chance.uniform(0.0, 1.0))
        proxy.choose = lambda request: fault
        time.sleep(chance.uniform(5.0, 25.0))
        proxy.choose = lambda request: None
    ended = pipeline.wait()
    assert ended.code == 0, ended.err
    assert len(proxy.injected) > 10
    assert rows(lake, "SELECT COUNT(DISTINCT id) AS n FROM shop.orders") == [{"n": 60_000}]
    totals = "SELECT SUM(orders) AS n, SUM(total) AS total FROM shop.large"
    assert rows(lake, totals) == [{"n": 60_000, "total": 120_000}]


def test_a_query_needs_its_checkpoint(lake: str, tmp_path: Path) -> None:
    options = Warehouse(lake).options
    here, there = (Checkpoint(tmp_path / name, "sales", "shop.t") for name in ("here", "there"))
    register_checkpoint(options, here)
    register_checkpoint(options, here)
    with pytest.raises(StreamhouseError, match=f"another checkpoint .{here.path} on"):
        register_checkpoint(options, there)
    part = Checkpoint(tmp_path / "here", "sales", "shop.t+a.b")
    register_checkpoint(options, part)
    assert {
        registered.id for registered in registered_checkpoints(options, here).values() if registered
    } == {
        here.query_id(),
        part.query_id(),
    }
    unregister_checkpoints(options, there)
    register_checkpoint(options, there)
    assert len(registered_checkpoints(options, here)) == 1


def test_what_is_wrong_is_one_line(lake: str, s3: S3Server) -> None:
    sql = "SELECT 1 AS one FROM shop.orders"
    for options, text in (
        (["--warehouse", "s3://nobucket/w"], "the bucket 'nobucket' does not exist at"),
        (["--warehouse", lake, "--option", "s3.endpoint=http://127.0.0.1:9"], "nothing answers at"),
        (["--warehouse", lake, "--option", "s3.acces-key=x"], "did you mean 's3.access-key'?"),
        (["--warehouse", lake], "there is no database 'shop'"),
    ):
        ended = CliRunner().invoke(build(["query"]), ["query", sql, *options])
        assert ended.exit_code == 1
        assert text in ended.stderr, ended.stderr


def test_missing_credentials_are_one_line(lake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setattr(s3_client, "_checked", set())
    command = ["query", "SELECT 1 AS one FROM shop.t", "--warehouse", lake]
    ended = CliRunner().invoke(build(command), command)
    assert ended.exit_code == 1, ended.output
    assert "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY" in ended.stderr


def test_credentials_of_a_profile(
    lake: str, s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in s3.environment:
        monkeypatch.delenv(name)
    own = s3.environment
    credentials = tmp_path / "credentials"
    credentials.write_text(
        f"[shop]\naws_access_key_id = {own['AWS_ACCESS_KEY_ID']}\n"
        f"aws_secret_access_key = {own['AWS_SECRET_ACCESS_KEY']}\n"
    )
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(credentials))
    monkeypatch.setenv("AWS_PROFILE", "shop")
    warehouse = Warehouse({"warehouse": lake, "s3.endpoint": s3.url})
    warehouse.create_database("shop")
    assert warehouse.databases() == ["shop"]
