"""Repairs by SQL while the pipeline runs, and what a user sees of a long one."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from tests.integration.runtime.concurrent_steps import ConcurrentSteps
from tests.integration.runtime.conftest import Ended, Run, Shop, Until
from tests.integration.runtime.terminal import on_terminal

import streamhouse
from streamhouse.errors import CommitConflictError, TableError
from streamhouse.paimon.storage.lock import commit_lock
from streamhouse.paimon.write.commit import TableCommitter
from streamhouse.paimon.write.commit_retries import CHANGE_USER
from streamhouse.paimon.write.table_writer import TableWriter
from streamhouse.runtime.audit import repair as repair_module
from streamhouse.runtime.audit.audit import audit
from streamhouse.runtime.audit.repair import repair

pytestmark = pytest.mark.usefixtures("in_threads")

ERASED = "\x1b[2K"
TABLES = """
CREATE TABLE IF NOT EXISTS orders (v_date STRING, id BIGINT, agent STRING, score BIGINT,
  PRIMARY KEY (v_date, id) NOT ENFORCED) PARTITIONED BY (v_date) WITH ('bucket' = '1');
CREATE TABLE IF NOT EXISTS scores (v_date STRING, agent STRING, score BIGINT, orders BIGINT,
  PRIMARY KEY (v_date, agent) NOT ENFORCED) PARTITIONED BY (v_date)
  WITH ('bucket' = '1', 'merge-engine' = 'aggregation',
        'fields.default-aggregate-function' = 'sum');
CREATE TABLE IF NOT EXISTS clicks (id INT) WITH ('bucket' = '-1');
CREATE TABLE IF NOT EXISTS seen (at_ TIMESTAMP(3) PRIMARY KEY NOT ENFORCED, clicks BIGINT)
  WITH ('bucket' = '1', 'merge-engine' = 'aggregation', 'fields.clicks.aggregate-function' = 'sum');
"""
PIPELINE = f"""{TABLES}
INSERT INTO scores SELECT v_date, agent, score, 1 FROM orders;
INSERT INTO seen SELECT CURRENT_TIMESTAMP, 1 FROM clicks;
"""


class Orders(ConcurrentSteps):
    """New and corrected orders, one commit after the other, until the `with` ends."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(pause_s=0.1)
        self._options = options
        self.commits = 0

    def step(self) -> None:
        self._commit(self.commits)
        self.commits += 1

    def _commit(self, number: int) -> None:
        if number % 3 == 2:
            sql = f"UPDATE orders SET score = score + 1 WHERE id = {number - 1}"
        else:
            agent = ("ann", "ben")[number % 2]
            sql = f"INSERT INTO orders VALUES ('d{number % 2 + 1}', {number}, '{agent}', {number})"
        streamhouse.execute(self._options, sql)


def sums(shop: Shop) -> list[tuple[str, str, int, int]]:
    rows = shop.rows("scores")
    return [(r["v_date"], r["agent"], r["score"], r["orders"]) for r in rows if r["orders"]]


def batch(shop: Shop) -> list[tuple[str, str, int, int]]:
    """The same computed from the orders as they are."""
    found: dict[tuple[str, str], tuple[int, int]] = {}
    for row in shop.rows("orders"):
        key = row["v_date"], row["agent"]
        score, count = found.get(key, (0, 0))
        found[key] = score + row["score"], count + 1
    return sorted((*key, *value) for key, value in found.items())


def ended(shop: Shop, *arguments: str) -> Ended:
    done = Run(shop.folder, [*arguments, "--warehouse", str(shop.path)], {}, spark=False).wait()
    assert (done.code, done.err) == (0, ""), done.err
    return done


def called(shop: Shop, procedure: str) -> dict[str, Any]:
    (row,) = json.loads(ended(shop, "call", procedure, "--format", "json").out)
    assert isinstance(row, dict)
    return row


def score(shop: Shop, snapshot: int, v_date: str, agent: str) -> int:
    table = shop.warehouse.table("default.scores")
    rows = [row for batch in table.read(snapshot=snapshot) for row in batch.to_pylist()]
    (found,) = [row["score"] for row in rows if (row["v_date"], row["agent"]) == (v_date, agent)]
    return int(found)


def clicked(shop: Shop, count: int) -> bool:
    return bool(sum(row["clicks"] for row in shop.rows("seen")) == count)


def repair_beside(shop: Shop, until: Until) -> None:
    """Each repair is one snapshot that takes back just what was wrong, whatever comes meanwhile."""
    options = shop.warehouse.options
    with Orders(options) as orders:
        until(lambda: len(sums(shop)) == 2)
        streamhouse.execute(options, "UPDATE scores SET score = score + 100000")
        done = called(shop, "sys.repair(table => 'default.scores', where => 'v_date = ''d1''')")
        assert (done["inserted"], done["updated"], done["deleted"]) == (0, 1, 0)
        snapshot = done["snapshot_id"]
        made = shop.warehouse.table("default.scores").snapshot(snapshot)
        assert made.commit_user.startswith(CHANGE_USER)
        before = score(shop, snapshot - 1, "d1", "ann")
        assert before - score(shop, snapshot, "d1", "ann") == 100_000
        script = shop.script("CALL sys.repair(table => 'scores');", "call.sql")
        output = ended(shop, "run", str(script)).out
        assert "default.scores" in output
        count = orders.commits
        until(lambda: orders.commits > count)
    until(lambda: sums(shop) == batch(shop))
    again = repair(options, "default.scores")
    assert (again.updated, again.snapshot) == (0, None)


def test_sums_are_repaired_by_sql_during_the_pipeline(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = shop.warehouse.options
    streamhouse.execute(options, TABLES)
    with shop.running_here(PIPELINE) as until:
        for clicks in (1, 2):
            streamhouse.execute(options, f"INSERT INTO clicks VALUES ({clicks})")
            until(partial(clicked, shop, clicks))
        repair_beside(shop, until)
        message = "uses the time of the batch .*INSERT OVERWRITE … SELECT"
        with pytest.raises(TableError, match=message):
            repair(options, "default.seen")
    for table in ("scores", "seen"):
        found = audit(options, f"default.{table}")
        assert found.equal and found.batches > 1, found.differences
    assert len(shop.rows("seen")) == 2
    long_repair(shop)
    monkeypatch.setattr(repair_module, "_PAUSE_S", 0.01)
    lineage_behind(shop)


def long_repair(shop: Shop) -> None:
    """The command waits for the table's lock, as it would for a long commit, and says so."""
    options = shop.warehouse.options
    streamhouse.execute(options, "UPDATE scores SET score = 0 WHERE v_date = 'd1'")
    location = shop.warehouse.table("default.scores").location
    arguments = ("repair", "default.scores", "--warehouse", str(shop.path))
    with contextlib.ExitStack() as lock:
        lock.enter_context(commit_lock(location))
        with on_terminal(*arguments) as terminal:
            terminal.until("writing")
            lock.close()
            assert "1 updated" in terminal.end()
    assert ERASED in terminal.displayed.rpartition("left")[2]
    assert sums(shop) == batch(shop)


def lineage_behind(shop: Shop) -> None:
    """A commit whose lineage is not written, as a killed pipeline leaves it, is told."""
    options, table = shop.warehouse.options, "default.scores"
    rows = shop.rows("scores__lineage")
    query, number = rows[0]["query_id"], max(row["batch_id"] for row in rows) + 1
    writer = TableWriter(options, table, query)
    row = {"v_date": "d1", "agent": "ann", "score": 1, "orders": 1}
    schema = shop.warehouse.table(table).arrow_schema
    writer.write(pa.RecordBatch.from_pylist([row], schema=schema))
    TableCommitter(options, table, query).commit(number, writer.prepare(number))
    writer.close()
    with pytest.raises(CommitConflictError, match="its lineage lacks the last commits"):
        repair(options, table)


LONG = """
CREATE TABLE raw (id BIGINT, score BIGINT) WITH ('bucket' = '-1');
CREATE TABLE here (id BIGINT PRIMARY KEY NOT ENFORCED, score BIGINT) WITH ('bucket' = '1');
CREATE TABLE there (id BIGINT PRIMARY KEY NOT ENFORCED, score BIGINT) WITH ('bucket' = '1');
INSERT INTO raw VALUES (1, 1), (2, 2), (3, 3);
INSERT INTO here VALUES (1, 9);
INSERT INTO there VALUES (1, 9);
"""


def test_a_long_insert_shows_how_far_it_is_on_a_terminal_only(shop: Shop) -> None:
    streamhouse.execute(shop.warehouse.options, LONG)
    sql, path = "INSERT INTO {} SELECT * FROM raw", str(shop.path)
    with contextlib.ExitStack() as locks:
        for name in ("here", "there"):
            location = shop.warehouse.table(f"default.{name}").location
            locks.enter_context(commit_lock(location))
        words = ["execute", sql.format("there"), "--warehouse", path]
        quiet = Run(shop.folder, words, {}, spark=False)
        shop.runs.append(quiet)
        with on_terminal("execute", sql.format("here"), "--warehouse", path) as terminal:
            terminal.until("comparing")
            terminal.until("3 rows")
            locks.close()
            assert terminal.end() == "2 inserted, 1 updated\n"
    assert ERASED in terminal.displayed.rpartition("left")[2]
    done = quiet.wait()
    assert (done.code, done.out, done.err) == (0, "2 inserted, 1 updated\n", "")
