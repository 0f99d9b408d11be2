"""INSERTs into tables without a key, whose rows are computed from changes, whatever is killed."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from pathlib import Path

import pytest
from pypaimon import CatalogFactory
from tests.integration.runtime.conftest import failing_at
from tests.unit.runtime.local_pipeline import LocalPipeline
from tests.unit.views import view_session
from tests.unit.views.generated_queries import Generator
from tests.unit.views.test_monotonic import APPEND_ONLY, GROWING, changes_by
from tests.unit.views.view_session import ViewBatches, ViewSession

from streamhouse.errors import DataLossError, StreamhouseError
from streamhouse.operators.trees import incremental as trees
from streamhouse.operators.trees import recompute
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.changelog.consumers import Consumers
from streamhouse.runtime.audit.audit import audit
from streamhouse.runtime.views import incremental, task
from streamhouse.state import segment

_GENERATED = 40
_DOUBLED = "SELECT o.id, v.page FROM orders o JOIN visits v ON o.customer_id = v.customer_id"


def _batches(session: ViewSession, name: str, query: str, folder: Path) -> ViewBatches:
    spec = session.appended(name, query)
    assert spec.plan.keyless
    return ViewBatches(session, name, folder, "incremental", spec)


@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(2, 100))]
)
def test_each_batch_appends_what_it_adds(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kills, lost kept rows, and other writers of the table."""
    monkeypatch.setattr(view_session, "TABLES", APPEND_ONLY)
    monkeypatch.setattr(segment, "TIER", 2)
    monkeypatch.setattr(trees, "PART_ROWS", (250_000, 1, 3)[seed % 3])
    start = incremental.start_merges
    monkeypatch.setattr(incremental, "start_merges", lambda *given: start(*given).join())
    session, rng = ViewSession(tmp_path / "warehouse"), random.Random(seed)
    generated = [Generator(seed * 500 + n).query() for n in range(_GENERATED)]
    growing = [_DOUBLED, *rng.sample(GROWING, 3)]
    growing += [query for query in generated if changes_by(query) is None][:4]
    views = {query: _batches(session, f"t{n}", query, tmp_path) for n, query in enumerate(growing)}
    others: dict[str, Counter[object]] = {query: Counter() for query in growing}
    for view in views.values():
        view.builds_late = lambda: rng.random() < 0.4
    for number in range(6):
        inserts = view_session.change(rng, number).split("; ")
        session.execute("; ".join(each for each in inserts if each.startswith("INSERT")))
        for query, view in views.items():
            name = view.spec.target.identifier
            if rng.random() < 0.2:
                shutil.rmtree(view.state, ignore_errors=True)
            if rng.random() < 0.2:
                before = session.rows(f"SELECT * FROM {name}")
                session.execute(f"USE shop; INSERT INTO {name} SELECT * FROM {name}")
                others[query] += before
            view.refresh(rng.choice(("", "before", "after")))
            found = session.rows(f"SELECT * FROM {name}")
            assert found == session.rows(query) + others[query], query
    assert views[_DOUBLED].strategies["incremental"]


def _roll_back(warehouse: dict[str, str], table: str) -> None:
    CatalogFactory.create(dict(warehouse)).get_table(table).rollback_to(1)


def _appending(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[ViewSession, ViewBatches]:
    """A table with the first rows of a join."""
    monkeypatch.setattr(view_session, "TABLES", APPEND_ONLY)
    session = ViewSession(tmp_path / "warehouse")
    view = _batches(session, "t", _DOUBLED, tmp_path)
    for number in range(2):
        session.execute(f"INSERT INTO orders (id, customer_id) VALUES ({number}, 1)")
        session.execute("INSERT INTO visits VALUES (1, 'a', 1)")
        view.refresh()
    return session, view


def test_rows_that_leave_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session, view = _appending(tmp_path, monkeypatch)
    session.execute("INSERT OVERWRITE visits SELECT customer_id, page, seconds FROM visits")
    assert view.refresh() == 0
    session.execute("TRUNCATE TABLE visits")
    with pytest.raises(DataLossError, match="rows leave the result.*--from-scratch"):
        view.refresh()
    assert session.rows("SELECT * FROM t").total() == 4


def test_an_input_that_was_rolled_back_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, view = _appending(tmp_path, monkeypatch)
    _roll_back(session.warehouse, "shop.visits")
    with pytest.raises(DataLossError, match="shop.visits had are not known, since its snapshot 2"):
        view.refresh()


def test_the_difference_of_large_results_gets_more_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (recompute, task):
        monkeypatch.setattr(module, "MEMORY", "1KB")
    session, view = _appending(tmp_path, monkeypatch)
    view.spec.open_store().clear()
    session.execute("INSERT INTO visits VALUES (1, 'b', 1)")
    assert view.refresh() == 2
    assert session.rows("SELECT * FROM t") == session.rows(_DOUBLED)


TABLES = """
CREATE TABLE IF NOT EXISTS orders (id INT, customer_id INT);
CREATE TABLE IF NOT EXISTS regions (customer_id INT, region STRING);
CREATE TABLE IF NOT EXISTS listed (id INT, region STRING);
"""
JOINED = "SELECT o.id, r.region FROM orders o JOIN regions r ON o.customer_id = r.customer_id"
INSERT = f"{TABLES} INSERT INTO listed {JOINED};"


def _rows(shop: LocalPipeline) -> list[tuple[int, str]]:
    return sorted((row["id"], row["region"]) for row in shop.rows("listed"))


def _shop(folder: Path) -> LocalPipeline:
    shop = LocalPipeline(folder)
    shop.do(f"{TABLES} INSERT INTO orders VALUES (1, 1); INSERT INTO regions VALUES (1, 'n')")
    return shop


def test_no_other_table_keeps_the_result(tmp_path: Path) -> None:
    shop = _shop(tmp_path)
    shop.run(INSERT)
    shop.do("INSERT INTO orders VALUES (2, 1)")
    shop.run(INSERT)
    assert _rows(shop) == [(1, "n"), (2, "n")]
    assert set(shop.warehouse.tables("default")) == {"orders", "regions", "listed"}
    assert audit(shop.options, "default.listed").equal
    shop.do("INSERT INTO listed VALUES (3, 'by hand')")
    assert audit(shop.options, "default.listed").equal
    shop.do("INSERT OVERWRITE listed SELECT * FROM listed WHERE id > 1")
    assert not audit(shop.options, "default.listed").equal


def test_several_queries_append_to_one_table(tmp_path: Path) -> None:
    shop = _shop(tmp_path)
    shop.do("INSERT INTO listed VALUES (0, 'by hand')")
    shop.run(INSERT)
    other = JOINED.replace("o.id", "o.id + 100")
    plain = "INSERT INTO listed SELECT id, 'plain' FROM orders;"
    script = f"{INSERT} INSERT INTO listed {other}; {plain}"
    for number in (2, 3):
        shop.run(script)
        shop.run(f"{TABLES} INSERT INTO listed {JOINED} WHERE o.id > 2;", name="more.sql")
        shop.do(f"INSERT INTO orders VALUES ({number}, 1)")
    shop.run(script)
    joined = [(n, "n") for n in (1, 2, 3)] + [(n + 100, "n") for n in (1, 2, 3)]
    assert _rows(shop) == sorted([(0, "by hand"), *joined, *((n, "plain") for n in (1, 2, 3))])


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ("select", "its SELECT has changed"),
        ("target", "dropped and created again"),
        ("checkpoint", "which a new query would write again"),
        ("consumer", "whose checkpoint is gone, which a new query would write again"),
        ("pipeline", "which a new query would write again"),
        ("rollback", "is an older copy, or was rolled back"),
    ],
)
def test_a_query_that_would_write_wrong_rows_does_not_start(
    change: str, error: str, tmp_path: Path
) -> None:
    shop, script, name = _shop(tmp_path), INSERT, "figures.sql"
    shop.run(script)
    shop.do("INSERT INTO orders VALUES (2, 1)")
    if change == "select":
        script = f"{TABLES} INSERT INTO listed {JOINED} WHERE o.id > 0;"
    elif change == "target":
        shop.do(f"DROP TABLE listed; {TABLES}")
    elif change in ("checkpoint", "consumer"):
        shutil.rmtree(shop.checkpoint("listed"))
        if change == "consumer":
            assert Consumers(Warehouse(shop.options).table("default.listed")).drop_expired()
    elif change == "pipeline":
        name = "other.sql"
    else:
        shop.run(script)
        _roll_back(shop.options, "default.listed")
    with pytest.raises(StreamhouseError, match=error):
        shop.run(script, name=name)
    if change in ("select", "target", "rollback"):
        shop.run(script, from_scratch=True)
        assert _rows(shop) == [(1, "n"), (2, "n")]


def test_a_query_goes_on_after_all_rows_were_removed(tmp_path: Path) -> None:
    shop = _shop(tmp_path)
    shop.run(INSERT)
    shop.do("TRUNCATE TABLE listed; INSERT INTO orders VALUES (2, 1)")
    output = shop.run(INSERT)
    assert any("those that it wrote before stay removed" in line for line in output)
    assert _rows(shop) == [(2, "n")]
    assert Warehouse(shop.options).table("default.listed").latest_snapshot_id() == 3


def test_a_batch_that_was_interrupted_finds_its_commit(tmp_path: Path) -> None:
    """No expiry removes the commit while Spark's log does not have the batch."""
    shop = _shop(tmp_path)
    shop.run(INSERT)
    shop.do("INSERT INTO orders VALUES (2, 1)")
    with failing_at("target-committed:1:default.listed"):
        shop.run(INSERT)
    shop.do("INSERT INTO listed VALUES (0, 'by hand')")
    with failing_at("batch-written:1:default.listed"):
        shop.run(INSERT)
    (consumer,) = Consumers(Warehouse(shop.options).table("default.listed")).all()
    assert consumer.next_snapshot <= 2
    shop.run(INSERT)
    assert _rows(shop) == [(0, "by hand"), (1, "n"), (2, "n")]


def test_windows_go_on_after_their_select_has_changed(tmp_path: Path) -> None:
    shop = LocalPipeline(tmp_path)
    tables = (
        "CREATE TABLE IF NOT EXISTS events (ts TIMESTAMP(3), WATERMARK FOR ts AS ts); "
        "CREATE TABLE IF NOT EXISTS counts (e TIMESTAMP(3), n BIGINT);"
    )
    windows = (
        "FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) "
        "GROUP BY window_start, window_end"
    )
    output: list[str] = []
    for number in range(2):
        minutes = ", ".join(f"(TIMESTAMP '2026-01-01 00:0{number + n}:10')" for n in range(2))
        shop.do(f"{tables} INSERT INTO events VALUES {minutes}")
        counted = f"SELECT window_end, COUNT(*) + {number * 10} {windows}"
        output = shop.run(f"{tables} INSERT INTO counts {counted};")
    assert any("windows that were written keep their rows" in line for line in output)
    assert sorted((row["e"].minute, row["n"]) for row in shop.rows("counts")) == [(1, 1), (2, 12)]
    for minute in (1, 5):
        shop.do(f"INSERT INTO counts VALUES (TIMESTAMP '2026-01-01 00:0{minute}:00', 99)")
    assert audit(shop.options, "default.counts").equal
    assert "counts" in shop.warehouse.tables("default")
    assert not [name for name in shop.warehouse.tables("default") if "__view" in name]


def test_an_insert_into_a_partition_reads_the_view_of_its_result(tmp_path: Path) -> None:
    shop = _shop(tmp_path)
    parts = "CREATE TABLE IF NOT EXISTS parts (id INT, region STRING, p STRING) PARTITIONED BY (p);"
    for number in (2, 3):
        shop.run(f"{TABLES} {parts} INSERT INTO parts PARTITION (p = 'x') {JOINED};")
        shop.do(f"INSERT INTO orders VALUES ({number}, 1)")
    rows = [{"id": 1, "region": "n", "p": "x"}, {"id": 2, "region": "n", "p": "x"}]
    assert sorted(shop.rows("parts"), key=lambda row: row["id"]) == rows
