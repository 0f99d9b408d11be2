"""Views on a cluster share alike rows in the object store, though their drivers share no disk."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.unit.views.view_session import ViewBatches, ViewSession, change

from streamhouse.operators.trees.incremental import IncrementalRefresh
from streamhouse.paimon.storage.files import LocalFiles
from streamhouse.runtime.state import replica
from streamhouse.runtime.views import build, incremental, spec
from streamhouse.state import segment
from streamhouse.state.segment import StateError

_JOINED = "FROM orders o JOIN customers c ON c.id = o.customer_id GROUP BY c.country"
_SUMS = f"SELECT c.country, SUM(CAST(o.amount AS BIGINT)) AS s {_JOINED}"
_MOST = f"SELECT c.country, MAX(o.amount) AS m {_JOINED}"


class _Killed(BaseException):
    """The process ends: nothing catches it."""


class _Lake(LocalFiles):
    """The object store of a test, which counts bytes of segments, and fails or kills if told to."""

    def __init__(self) -> None:
        self.sent: Counter[str] = Counter()
        self.received: Counter[str] = Counter()
        self.copied: list[str] = []
        self.kills_at = ""
        """Once a file whose name contains this is to be uploaded, the process is dead."""
        self.dead = False
        self.away: tuple[str, ...] = ()
        """The operations that fail."""

    def _begin(self, operation: str) -> None:
        if self.dead:
            raise _Killed
        if operation in self.away:
            raise OSError("the store is away")

    def names(self, path: str) -> list[tuple[str, bool]]:
        self._begin("names")
        return super().names(path)

    @contextmanager
    def open_output(self, path: str) -> Iterator[Any]:
        self.dead = self.dead or bool(self.kills_at and self.kills_at in path)
        self._begin("open_output")
        Path(path).unlink(missing_ok=True)  # An object is replaced.
        with super().open_output(path) as file:
            yield file
            self.sent[_view_of(path)] += file.tell() if path.endswith(".arrow") else 0

    def open_input(self, path: str) -> Any:
        self._begin("open_input")
        file = super().open_input(path)
        self.received[_view_of(path)] += Path(path).stat().st_size * path.endswith(".arrow")
        return file

    def copy(self, source: str, target: str) -> None:
        self._begin("copy")
        super().copy(source, target)
        self.copied.append(target)

    def delete(self, path: str) -> None:
        self._begin("delete")
        super().delete(path)


def _view_of(path: str) -> str:
    return Path(path).parents[1].name


class _Cluster:
    """Views over a warehouse; their drivers and tasks are on hosts with disks of their own."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.folder, self.lake = folder, _Lake()
        self.session = ViewSession(folder / "warehouse")
        self.queries: dict[str, str] = {}
        self.views: dict[str, ViewBatches] = {}
        patch.setattr(spec, "files_of", lambda *_: self.lake)

    def start(self, name: str, query: str, host: str = "a", built: bool = True) -> None:
        """Start a view; what it keeps is `built` after its first batch, or later."""
        self.session.view(name, query)
        view = ViewBatches(self.session, name, self.folder / "unused", "incremental")
        view.spec = replace(view.spec, replica=str(self.replica(name)))
        view.builds_late = lambda: not built
        self.views[name], self.queries[name] = view, query
        self.refresh(name, host)

    def replica(self, name: str) -> Path:
        return self.folder / "lake" / ".checkpoints" / "materialized views" / name / "state"

    def files(self, name: str) -> set[str]:
        return {path.name for path in self.replica(name).glob("*.arrow")}

    def refresh(self, name: str, host: str, killed: str = "") -> None:
        """Run the next batch of a view on a host, and check its rows."""
        view, state = self.views[name], self.folder / host / name / "state"
        state.parent.mkdir(parents=True, exist_ok=True)
        view.spec = replace(view.spec, state=str(state))
        view.refresh(killed)
        self.session.check(name, self.queries[name])

    def strategies(self, name: str) -> dict[str, int]:
        return dict(self.views[name].strategies)


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> _Cluster:
    made = _Cluster(tmp_path, monkeypatch)
    rows = (f"({n}, {n % 7}, 'p{n}', {n % 100})" for n in range(10_000))
    made.session.execute(
        "INSERT INTO customers VALUES (1, 'x', 'DE', TRUE), (2, 'y', 'FR', FALSE); "
        f"INSERT INTO orders (id, customer_id, product, amount) VALUES {', '.join(rows)}"
    )
    return made


def test_alike_rows_are_uploaded_once(cluster: _Cluster) -> None:
    cluster.start("sums", _SUMS, "a")
    alone = cluster.lake.sent["sums"]
    assert alone > 300_000
    # The drivers of the others have no file of the first one.
    cluster.start("same", _SUMS, "b")
    cluster.start("most", _MOST, "c")
    assert not cluster.lake.sent["same"]
    assert cluster.lake.sent["most"] < alone / 5
    assert cluster.files("same") == cluster.files("sums")
    assert cluster.files("most") & cluster.files("sums")
    cluster.session.execute("DELETE FROM orders WHERE id = 1; UPDATE customers SET country = 'IT'")
    for name, host in (("sums", "b"), ("same", "c"), ("most", "a")):
        cluster.refresh(name, host)
        assert cluster.strategies(name) == {"recompute": 1, "incremental": 1}
    assert cluster.lake.sent.total() < 1.25 * alone


def test_a_host_has_alike_rows_once(cluster: _Cluster) -> None:
    cluster.start("sums", _SUMS, "a")
    cluster.start("same", _SUMS, "a")
    cluster.session.execute("DELETE FROM orders WHERE id = 1")
    cluster.refresh("same", "a")
    assert not cluster.lake.received.total()
    own = cluster.folder / "a" / "same" / "state"
    assert any(path.stat().st_nlink > 1 for path in own.glob("*.arrow"))


@pytest.mark.parametrize("how", ["dropped", "merged", "idle"])
def test_what_is_shared_does_not_depend_on_its_first_view(
    how: str, cluster: _Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.start("sums", _SUMS, "a")
    first = cluster.files("sums")
    cluster.start("same", _SUMS, "b")
    if how == "dropped":
        shutil.rmtree(cluster.replica("sums").parent)
        shutil.rmtree(cluster.folder / "a")
    if how == "merged":
        monkeypatch.setattr(segment, "TIER", 2)
        for number in range(4):
            cluster.session.execute(f"UPDATE orders SET amount = {number} WHERE id < 9900")
            cluster.refresh("sums", "a")
        assert first - cluster.files("sums")
    if how == "idle":
        cluster.views["sums"].spec.open_store().clear()
        assert not cluster.files("sums")
    assert cluster.files("same") >= first
    for number, host in enumerate("cbd"):
        cluster.session.execute(f"DELETE FROM orders WHERE id = {number}")
        cluster.refresh("same", host)
    assert cluster.strategies("same") == {"recompute": 1, "incremental": 3}


@pytest.mark.parametrize("at", ["manifest-", ".arrow"])
def test_a_build_that_is_killed_after_it_has_shared_rows(at: str, cluster: _Cluster) -> None:
    cluster.start("sums", _SUMS, "a")
    cluster.start("most", _MOST, "b", built=False)
    view = cluster.views["most"]
    cluster.lake.kills_at = at
    with pytest.raises(_Killed):
        build.build(view.spec, view.offset)
    assert cluster.files("most"), "it is killed after it has shared rows"
    cluster.lake.dead, cluster.lake.kills_at = False, ""
    shutil.rmtree(cluster.folder / "b")
    cluster.session.execute("DELETE FROM orders WHERE id = 1")
    cluster.refresh("sums", "a")
    view.builds_late = lambda: False
    cluster.refresh("most", "c")
    view.spec.open_replica().remove_leftovers()
    named = set().union(*(each.files for each in view.spec.open_store().manifests()))
    assert named and cluster.files("most") == named
    cluster.session.execute("DELETE FROM orders WHERE id = 2")
    cluster.refresh("most", "a")
    assert cluster.strategies("most") == {"recompute": 2, "incremental": 1}


def test_a_build_that_fails_leaves_nothing(
    cluster: _Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.start("sums", _SUMS, "a")
    cluster.start("most", _MOST, "b", built=False)
    view = cluster.views["most"]

    def fail(*_: object) -> None:
        raise StateError("kept rows are damaged")

    monkeypatch.setattr(IncrementalRefresh, "build", fail)
    with pytest.raises(StateError):
        build.build(view.spec, view.offset)
    assert cluster.lake.copied and not cluster.files("most")


def test_without_the_object_store_all_is_computed(cluster: _Cluster) -> None:
    cluster.start("sums", _SUMS, "a")
    for name, operation in (("lists", "names"), ("copies", "copy")):
        cluster.lake.away = (operation,)
        cluster.start(name, _SUMS, "b")
        cluster.lake.away = ()
        assert not cluster.files(name) & cluster.files("sums")
        cluster.session.execute(f"DELETE FROM orders WHERE product = 'p{len(name)}'")
        cluster.refresh(name, "b")
        cluster.refresh("sums", "c")


def test_a_batch_that_ends_during_an_upload_keeps_what_is_built(
    cluster: _Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver fetches the manifests after each commit, while another process builds."""
    cluster.start("sums", _SUMS, "a", built=False)
    view = cluster.views["sums"]
    driver, send = view.spec.open_replica(), replica.ReplicatedStore._upload

    def slow(store: replica.ReplicatedStore, name: str) -> None:
        if name.endswith(".arrow"):
            driver.fetch(segments=False)
        send(store, name)

    monkeypatch.setattr(replica.ReplicatedStore, "_upload", slow)
    build.build(view.spec, view.offset)
    cluster.session.execute("DELETE FROM orders WHERE id = 1")
    cluster.refresh("sums", "b")
    assert cluster.strategies("sums") == {"recompute": 1, "incremental": 1}


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(1, 60))]
)
def test_views_that_share_while_anything_is_lost(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Views begin, lag and are dropped; batches and builds are killed, and files are lost."""
    monkeypatch.setattr(segment, "TIER", 2)
    monkeypatch.setattr(incremental, "SMALL_ROWS", 0)
    monkeypatch.setattr("streamhouse.runtime.views.shared_rows.LARGE_CHANGE", 9.0)
    merges = incremental.start_merges
    monkeypatch.setattr(incremental, "start_merges", lambda *given: merges(*given).join())
    cluster, rng = _Cluster(tmp_path, monkeypatch), random.Random(seed)
    lake, queries = cluster.lake, [_query(rng) for _ in range(3)]
    cluster.session.execute(change(rng, 0))
    cluster.start("v0", queries[0], "a")
    cluster.start("v2", queries[0], "b")
    assert lake.copied
    for number in range(1, 8):
        cluster.session.execute(change(rng, number))
        if number % 2:
            cluster.start(f"v{number}", rng.choice(queries), rng.choice("abc"), built=False)
        for name, view in cluster.views.items():
            if rng.random() < 0.3:
                continue  # It lags.
            view.builds_late = lambda: rng.random() < 0.4
            _lose_something(cluster, rng)
            lake.kills_at = rng.choice(("", "", "", "", "", ".arrow", "manifest-"))
            lake.away = rng.choice((*[()] * 9, ("names",), ("copy",), ("delete", "open_input")))
            before = view.offset
            try:
                cluster.refresh(name, rng.choice("abc"), rng.choice(("", "", "before", "after")))
            except _Killed:
                lake.dead, lake.kills_at = False, ""
                if view.offset == before:
                    # A batch that was killed runs again, on any host.
                    cluster.refresh(name, rng.choice("abc"))
            lake.kills_at, lake.away = "", ()
            cluster.session.check(name, cluster.queries[name])
    assert any(view.strategies["incremental"] for view in cluster.views.values())


def _lose_something(cluster: _Cluster, rng: random.Random) -> None:
    """Lose a host, a view's folder there, its replica, a file, or the files without a manifest."""
    name, host = rng.choice([*cluster.views]), rng.choice("abc")
    files = sorted((cluster.folder / "lake").rglob("*.*"))
    files += sorted((cluster.folder / host).glob("*/state/*"))
    files = [path for path in files if path.is_file() and path.suffix != ".lock"]
    match rng.randrange(20):
        case 0:
            shutil.rmtree(cluster.folder / host, ignore_errors=True)
        case 1:
            shutil.rmtree(cluster.folder / host / name / "state", ignore_errors=True)
        case 2:
            shutil.rmtree(cluster.replica(name).parent, ignore_errors=True)
        case 3 if files:
            rng.choice(files).unlink()
        case 4 if files:
            path = rng.choice(files)
            path.write_bytes(path.read_bytes()[: rng.randrange(1000)] + b"damaged")
        case 5:
            cluster.views[name].spec.open_replica().remove_leftovers()


def _query(rng: random.Random) -> str:
    join = rng.choice(("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"))
    result = rng.choice(("COUNT(*)", "SUM(o.price)", "MAX(o.amount)", "COUNT(DISTINCT o.product)"))
    where = rng.choice(("", "WHERE o.amount > 0", "WHERE c.vip OR o.price < 2"))
    return (
        f"SELECT c.country, {result} AS r FROM orders o {join} customers c "
        f"ON c.id = o.customer_id {where} GROUP BY c.country"
    )
