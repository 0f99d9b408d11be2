"""Views whose tasks run on several hosts find what they keep in a replica of all hosts."""

from __future__ import annotations

import random
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.views.view_session import ViewBatches, ViewSession, change

from streamhouse.paimon.storage.files import LocalFiles
from streamhouse.runtime.state.replica import ReplicatedStore
from streamhouse.runtime.views import incremental, spec
from streamhouse.state import segment

_QUERY = (
    "SELECT c.country, COUNT(*) AS n, SUM(CAST(o.amount AS BIGINT)) AS s, MIN(o.price) AS m FROM "
    "orders o LEFT JOIN customers c ON o.customer_id = c.id GROUP BY c.country"
)


def _view(session: ViewSession, tmp_path: Path) -> ViewBatches:
    session.view("v", _QUERY)
    view = ViewBatches(session, "v", tmp_path, "incremental")
    view.spec = replace(view.spec, replica=str(tmp_path / "replica"))
    return view


def _move(view: ViewBatches, tmp_path: Path, host: str) -> None:
    """Let the next batch run on a host; each has a disk of its own."""
    folder = tmp_path / host / "state"
    folder.parent.mkdir(exist_ok=True)
    view.spec = replace(view.spec, state=str(folder))


def test_another_host_goes_on_from_what_is_kept(tmp_path: Path) -> None:
    session = ViewSession(tmp_path / "warehouse")
    view = _view(session, tmp_path)
    for number in range(6):
        session.execute(f"INSERT INTO orders (id, customer_id, amount) VALUES ({number}, 1, 2)")
        _move(view, tmp_path, "ab"[number % 2])
        view.refresh()
        session.check("v", _QUERY)
    assert view.strategies == {"recompute": 1, "incremental": 5}
    kept = {path.name for path in (tmp_path / "replica").iterdir()}
    own = {path.name for path in (tmp_path / "b" / "state").iterdir()}
    assert kept == own - {"writing.lock"}


def test_a_host_without_the_store_of_objects_recomputes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    session = ViewSession(tmp_path / "warehouse")
    view = _view(session, tmp_path)
    _move(view, tmp_path, "a")
    session.execute("INSERT INTO orders (id, customer_id, amount) VALUES (1, 1, 2)")
    view.refresh()
    _move(view, tmp_path, "b")
    session.execute("INSERT INTO orders (id, customer_id, amount) VALUES (2, 1, 2)")
    with monkeypatch.context() as patch:
        _fail(patch, "names", "open_output")
        view.refresh()
    session.check("v", _QUERY)
    assert view.strategies == {"recompute": 2}
    assert "are not read: the store is away" in caplog.text


@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(2, 60))]
)
def test_hosts_and_files_may_be_lost_at_any_time(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches run on random hosts and are killed; disks, objects and the store itself fail."""
    monkeypatch.setattr(segment, "TIER", 2)
    start = incremental.start_merges
    monkeypatch.setattr(incremental, "start_merges", lambda *given: start(*given).join())
    session, rng = ViewSession(tmp_path / "warehouse"), random.Random(seed)
    view = _view(session, tmp_path)
    view.builds_late = lambda: rng.random() < 0.4
    for number in range(8):
        session.execute(change(rng, number))
        _move(view, tmp_path, rng.choice("abc"))
        if rng.random() < 0.2:
            shutil.rmtree(tmp_path / rng.choice("abc"), ignore_errors=True)
            _move(view, tmp_path, Path(view.spec.state).parent.name)
        files = sorted((tmp_path / "replica").glob("*"))
        if files and rng.random() < 0.2:
            path = rng.choice(files)
            path.unlink() if rng.random() < 0.5 else path.write_bytes(b"damaged")
        if rng.random() < 0.1:
            ReplicatedStore(tmp_path / "d", LocalFiles(), view.spec.replica).remove_leftovers()
        with monkeypatch.context() as patch:
            if rng.random() < 0.2:
                _fail(patch, rng.choice(("names", "open_output", "open_input", "delete")))
            view.refresh(rng.choice(("", "", "before", "after")))
        session.check("v", _QUERY)


def _fail(patch: pytest.MonkeyPatch, *operations: str) -> None:
    """Let operations of the store fail, for what views keep."""

    def fail(*_: object) -> None:
        raise OSError("the store is away")

    files = type("Away", (LocalFiles,), dict.fromkeys(operations, fail))
    patch.setattr(spec, "files_of", lambda *_: files())
