"""Views refreshed from changes have the rows of their queries, whatever is killed or deleted."""

from __future__ import annotations

import random
import shutil
import uuid
from collections import Counter
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pypaimon import CatalogFactory
from tests.unit.views.generated_queries import queries_of
from tests.unit.views.view_session import ViewBatches, ViewSession, change

from streamhouse.connectors.base import WrittenBatch
from streamhouse.duckdb_connection import LastingConnection
from streamhouse.operators.trees import incremental as trees
from streamhouse.operators.trees import recompute
from streamhouse.runtime.views import build, incremental, task
from streamhouse.runtime.views.incremental import IncrementalView
from streamhouse.source import ROW_KIND
from streamhouse.state import segment
from streamhouse.state.segment import mergeable

_VIEWS = 8
_SHOP = (
    "SELECT c.country, COUNT(*) AS n, SUM(o.price) AS s, MAX(o.amount) AS m FROM orders o JOIN "
    "customers c ON o.customer_id = c.id GROUP BY c.country",
    "SELECT o.id, o.rate, JSON_STRING(o.pair) AS j, v.page FROM (SELECT *, ARRAY[ROW(amount, "
    "ROW(product, 1))] AS pair FROM orders) o LEFT JOIN customers c ON o.customer_id = c.id FULL "
    "JOIN visits v ON v.customer_id = c.id",
    "SELECT DISTINCT page FROM visits WHERE customer_id NOT IN (SELECT id FROM customers WHERE "
    "vip)",
)
"""Views over all tables."""


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(1, 100))]
)
def test_generated_views(
    seed: int, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trees, "PART_ROWS", (250_000, 1, 3)[seed % 3])
    monkeypatch.setattr(incremental, "_FEW_ROWS", seed % 2 * 10_000)
    session, rng = ViewSession(tmp_path / "warehouse"), random.Random(seed)
    queries = queries_of(seed, _VIEWS)
    views = _created(session, queries, tmp_path)
    for number in range(5):
        session.execute(change(rng, number))
        for name, query in queries.items():
            try:
                views[name].refresh()
                session.check(name, query)
                again = views[name].refresh()
            except Exception as error:
                raise AssertionError(f"{query}\n{error}") from error
            assert again == 0, f"nothing has changed, but a refresh writes: {query}"
            assert not caplog.records, f"what is kept was dropped: {query}"


def test_refreshes_get_more_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (recompute, task, build):
        monkeypatch.setattr(module, "MEMORY", "1KB")
    session = ViewSession(tmp_path / "warehouse")
    views = _created(session, {"v": _SHOP[0]}, tmp_path)
    for number in range(3):
        session.execute(change(random.Random(number), number))
        views["v"].refresh()
        session.check("v", _SHOP[0])
    assert views["v"].strategies["incremental"]


def test_small_inputs_are_refreshed_from_changes_if_recomputing_is_slow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = ViewSession(tmp_path / "warehouse")
    used: dict[str, Counter[str]] = {}
    for name, fast_s in (("fast", 60.0), ("slow", 0.0)):
        monkeypatch.setattr(incremental, "FAST_S", fast_s)
        # Other text: a process remembers the times of a query.
        query = f"{_SHOP[0]} HAVING COUNT(*) > {len(used) - 1}"
        session.view(name, query)
        view = ViewBatches(session, name, tmp_path, "auto")
        for number in range(6):
            session.execute(change(random.Random(number), number))
            view.refresh()
            session.check(name, query)
        used[name] = view.strategies
    assert used == {"fast": {"recompute": 6}, "slow": {"recompute": 4, "incremental": 2}}


@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(2, 100))]
)
def test_what_is_kept_may_be_lost_at_any_time(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kills, deleted and damaged files, and other writers of the view's table.

    Kept rows are written and merged by the refresh, or by a thread that has ended before the next
    one.
    """
    monkeypatch.setattr(segment, "TIER", 2)
    monkeypatch.setattr(trees, "MERGED_ROWS", 5 if seed % 2 else 1_000)
    monkeypatch.setattr(trees, "PART_ROWS", 2 if seed % 3 else 1_000)
    start = incremental.start_merges
    monkeypatch.setattr(incremental, "start_merges", lambda *given: start(*given).join())
    session, rng = ViewSession(tmp_path / "warehouse"), random.Random(seed)
    write = IncrementalView._start_keeping

    def keep(view: IncrementalView, refresh: Any, wrote: bool, opened: ExitStack) -> None:
        if rng.random() < 0.3:
            # The process ends before what is kept is written.
            opened.close()
        else:
            write(view, refresh, wrote, opened).join()

    monkeypatch.setattr(incremental, "_FEW_ROWS", 0 if seed % 4 else 10_000)
    monkeypatch.setattr(IncrementalView, "_start_keeping", keep)
    queries = {f"v{n}": query for n, query in enumerate(_SHOP)}
    views = _created(session, queries, tmp_path)
    for view in views.values():
        view.builds_late = lambda: rng.random() < 0.4
    for number in range(7):
        session.execute(change(rng, number))
        for name, query in queries.items():
            view = views[name]
            if rng.random() < 0.3:
                _harm(rng, view.state)
            # Each round changes orders, so these views are refreshed.
            if name != "v2" and rng.random() < 0.2:
                _write_as_another(view, rng.choice(("rollback", "delete")))
            view.refresh(rng.choice(("", "before", "after", "")))
            session.check(name, query)
    assert any(view.strategies["incremental"] for view in views.values())


def test_a_change_of_many_parts_keeps_its_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(incremental, "_FEW_ROWS", 0)
    monkeypatch.setattr(trees, "PART_ROWS", 2)
    session, query = ViewSession(tmp_path / "warehouse"), "SELECT DISTINCT amount FROM orders"
    view = _created(session, {"v": query}, tmp_path)["v"]
    for number in range(4):
        rows = ", ".join(f"({10 * number + n}, {n})" for n in range(5))
        session.execute(f"INSERT INTO orders (id, amount) VALUES {rows}")
        view.refresh()
    session.check("v", query)
    assert view.strategies == {"recompute": 1, "incremental": 3} and not caplog.records


@pytest.mark.parametrize("aggregated", [False, True])
def test_one_row_with_many_matches(
    aggregated: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One change of an input changes so many rows that the memory of few changes is too little."""
    memory = LastingConnection(memory_limit="20MB", temp_directory="")
    monkeypatch.setattr(incremental, "_database", memory)
    session = ViewSession(tmp_path / "warehouse")
    session.execute(
        "CREATE TEMPORARY TABLE numbers (id INT) WITH ('connector' = 'datagen', "
        "'fields.id.kind' = 'sequence', 'fields.id.start' = '1', 'fields.id.end' = '200000'); "
        "INSERT INTO orders (id, customer_id, product) SELECT id, 1, CAST(id AS STRING) "
        "FROM numbers; INSERT INTO customers VALUES (1, 'x', 'DE', TRUE)"
    )
    joined = "FROM orders AS o JOIN customers AS c ON c.id = o.customer_id"
    query = f"SELECT o.id, o.product, c.country {joined}"
    if aggregated:
        query = f"SELECT c.country, COUNT(DISTINCT o.product) AS n {joined} GROUP BY c.country"
    view = _created(session, {"v": query}, tmp_path)["v"]
    view.refresh()
    session.execute("UPDATE customers SET country = 'FR'")
    view.refresh()
    assert session.rows("SELECT * FROM v") == session.rows(query)
    assert view.strategies == {"recompute": 1, "incremental": 1}


_REALS = (
    "SELECT o.id, t.total FROM orders o JOIN (SELECT customer_id, SUM(rate * 0.1) AS total, "
    "MIN(rate) AS d FROM orders GROUP BY customer_id) t ON o.customer_id = t.customer_id",
    "SELECT d.rate, COUNT(*) AS n FROM (SELECT DISTINCT rate FROM orders) d JOIN orders o ON "
    "o.rate = d.rate GROUP BY d.rate",
    "SELECT SUM(t.total) AS s, MAX(t.total) AS m FROM (SELECT product, SUM(rate / 3) AS total "
    "FROM orders GROUP BY product) t",
)


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(1, 30))]
)
def test_results_that_depend_on_the_order_of_rows(
    seed: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Rows that leave are those that were passed on, to the last bit: nothing is dropped."""
    session, rng = ViewSession(tmp_path / "warehouse"), random.Random(seed)
    queries = {f"v{n}": query for n, query in enumerate(_REALS)}
    views = _created(session, queries, tmp_path)
    for _ in range(6):
        values = ", ".join(
            f"({rng.randint(0, 40)}, {rng.randint(0, 1)}, '{rng.choice('ab')}', "
            f"CAST({rng.choice((0.1, 0.2, 0.3, 1e16, -1e16, 0.0, -0.0))} AS DOUBLE))"
            for _ in range(9)
        )
        session.execute(f"INSERT INTO orders (id, customer_id, product, rate) VALUES {values}")
        for view in views.values():
            view.refresh()
    assert not caplog.records
    for view in views.values():
        assert view.strategies == {"recompute": 1, "incremental": 5}


def _created(
    session: ViewSession, queries: dict[str, str], tmp_path: Path
) -> dict[str, ViewBatches]:
    """Creates views that are refreshed from changes."""
    for name, query in queries.items():
        session.view(name, query)
    return {name: ViewBatches(session, name, tmp_path, "incremental") for name in queries}


def _harm(rng: random.Random, folder: Path) -> None:
    """Delete or damage files, as a process that has not opened them would find them."""
    files = sorted(folder.glob("*"))
    if not files or rng.random() < 0.2:
        shutil.rmtree(folder, ignore_errors=True)
        return
    file = rng.choice(files)
    what = rng.choice(("delete", "truncate", "overwrite", "flip"))
    content = bytearray(file.read_bytes())
    file.unlink()
    if what == "truncate":
        file.write_bytes(content[: len(content) // 2])
    elif what == "overwrite":
        file.write_bytes(bytes(len(content)))
    elif what == "flip" and content:
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        file.write_bytes(content)


def test_views_over_views(tmp_path: Path) -> None:
    """The rows of a view with a hidden key are kept by that key."""
    session = ViewSession(tmp_path / "warehouse", "incremental")
    queries = {
        "totals": "SELECT c.country, COUNT(*) AS n, MAX(o.price) AS most FROM orders AS o JOIN "
        "customers AS c ON o.customer_id = c.id GROUP BY c.country",
        "top": "SELECT country, most FROM totals ORDER BY most DESC, country LIMIT 2",
        "pairs": "SELECT a.country, b.n FROM totals a JOIN totals b ON a.n = b.n",
    }
    for name, query in queries.items():
        session.view(name, query)
    rng = random.Random(3)
    for number in range(5):
        session.execute(change(rng, 0 if number < 4 else number))
        for name, query in queries.items():
            session.refresh(name)
            session.check(name, query)
    assert all(session.batches[name].strategies["incremental"] for name in queries)


@pytest.mark.parametrize("kind", ["rollback", "delete"])
def test_other_writers_of_the_views_table_are_noticed(kind: str, tmp_path: Path) -> None:
    session, query = ViewSession(tmp_path / "warehouse"), "SELECT id, product FROM orders"
    session.view("v", query)
    view = ViewBatches(session, "v", tmp_path, "incremental")
    for number in range(5):
        session.execute(f"INSERT INTO orders (id, product) VALUES ({number}, 'pen')")
        if number == 3:
            _write_as_another(view, kind)
        view.refresh()
        assert session.rows("SELECT * FROM v") == session.rows(query)
    assert view.strategies == {"recompute": 2, "incremental": 3}


def _write_as_another(view: ViewBatches, kind: str) -> None:
    """Roll a view's table back, or delete its rows as another writer."""
    table = view.spec.target.open()
    latest = table.latest_snapshot_id()
    if latest is None:
        return
    if kind == "rollback":
        catalog = CatalogFactory.create(dict(view.spec.target.warehouse))
        catalog.get_table(table.identifier).rollback_to(max(1, latest - 1))
        return
    rows = pa.Table.from_batches(list(table.read()), table.arrow_schema)
    gone = rows.append_column(ROW_KIND, pa.array(["-D"] * rows.num_rows, pa.string()))
    user = str(uuid.uuid4())
    sink = view.spec.open_sink()
    writer = sink.writer(user, 1, "a")
    for batch in gone.to_batches():
        writer.write(batch)
    messages = [bytes(message) for message in writer.prepare()]
    writer.close()
    sink.committer(user).commit(lambda: WrittenBatch(1, messages), lambda: None)


def test_elements_of_maps_and_of_arrays_of_rows(tmp_path: Path) -> None:
    session = ViewSession(tmp_path / "warehouse")
    session.execute(
        "CREATE TABLE nested (id INT PRIMARY KEY NOT ENFORCED, m MAP<STRING, INT>, "
        "r ARRAY<ROW<x INT, y STRING>>) WITH ('bucket' = '1')"
    )
    session.restart()
    queries = {
        "maps": "SELECT n.id, t.k, t.v FROM nested n LEFT JOIN UNNEST(n.m) AS t (k, v) ON TRUE",
        "rows": "SELECT x, COUNT(*) AS n FROM nested CROSS JOIN UNNEST(r) AS t (x, y) GROUP BY x",
        "made": "SELECT id, ROW(id, ROW('x', 1)) AS p, COUNT(*) AS n FROM nested GROUP BY id",
        "both": "SELECT u.x, t.v FROM nested n, UNNEST(n.m) AS t (k, v), UNNEST(n.r) AS u (x, y)",
    }
    views = _created(session, queries, tmp_path)
    for rows in (
        "(1, MAP['a', 1, 'b', 2], ARRAY[ROW(1, 'p'), ROW(2, 'q')]), (2, MAP['a', 3], "
        "ARRAY[ROW(1, 'p'), ROW(1, 'p')])",
        "(1, MAP['b', 2], CAST(NULL AS ARRAY<ROW<x INT, y STRING>>))",
    ):
        session.execute(f"INSERT INTO nested VALUES {rows}")
        for name, query in queries.items():
            views[name].refresh()
            session.check(name, query)
    assert all(view.strategies["incremental"] for view in views.values())


def test_merges_rewrite_few_rows() -> None:
    """The rows of merged segments are a small multiple of those that were added."""
    segments, written = [1_000_000], 0
    for _ in range(4_000):
        segments.append(1_000)
        first = mergeable(segments)
        if first < len(segments) - 1:
            written += sum(segments[first:])
            segments[first:] = [sum(segments[first:])]
        assert len(segments) < 40
    assert written < 4_000_000 * 6


def test_an_earlier_query_comes_back(tmp_path: Path) -> None:
    """The rows that its batches kept are there, but those of the view are of the other query."""
    session = ViewSession(tmp_path / "warehouse")
    session.execute("INSERT INTO visits VALUES (1, 'a', 1), (2, 'b', 2)")
    query = "SELECT customer_id, COUNT(*) AS n FROM some GROUP BY customer_id"
    some = "CREATE OR REPLACE VIEW some AS SELECT * FROM visits WHERE seconds >= {}"
    session.run(some.format(0))
    session.view("v", query)
    view = ViewBatches(session, "v", tmp_path, "incremental")
    for number, least in enumerate((0, 2, 0)):
        session.run(some.format(least))
        session.run(f"CREATE OR REPLACE MATERIALIZED VIEW v AS {query}")
        state = view.spec.query_id, view.spec.state
        view.spec = replace(
            session.spec("v"), query_id=state[0], state=state[1], strategy="incremental"
        )
        view.builds_late = (lambda: True) if number == 1 else (lambda: False)
        for _ in range(2):
            session.execute(f"INSERT INTO visits VALUES ({number + 3}, 'c', {number})")
            view.refresh()
            session.check("v", query)
    assert view.strategies["incremental"] >= 2
