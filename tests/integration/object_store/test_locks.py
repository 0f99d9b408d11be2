"""Writers on several machines: their commits exclude each other by an object of the store."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.integration.object_store.faulty_proxy import Fault, FaultyProxy, Request
from tests.waiting import DEADLINE_S, looks

from streamhouse.demo.s3_server import S3Server
from streamhouse.errors import CommitConflictError, StreamhouseError
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.storage.object_store import object_lock as locks
from streamhouse.paimon.storage.object_store.object_files import Answer, ObjectFiles
from streamhouse.paimon.storage.object_store.object_lock import object_lock
from streamhouse.sql.plan import Column

COMMITS = 8
WRITER = """
import sys, uuid
import pyarrow as pa
from streamhouse.paimon.write.commit import TableCommitter
from streamhouse.paimon.write.table_writer import TableWriter
lake, first, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
options, user = {"warehouse": lake}, str(uuid.uuid4())
committer = TableCommitter(options, "shop.t", user)
print("ready", flush=True)
sys.stdin.readline()
for number in range(count):
    writer = TableWriter(options, "shop.t", user)
    writer.write(pa.record_batch({"id": pa.array([first + number], pa.int64())}))
    committer.commit(number, writer.prepare(number))
    writer.close()
"""


@pytest.fixture
def files(lake: str, s3: S3Server) -> ObjectFiles:
    return ObjectFiles(lake, s3.options())


def test_two_machines_lose_no_commit(lake: str, tmp_path: Path) -> None:
    warehouse = Warehouse(lake)
    warehouse.create_database("shop")
    warehouse.create_table("shop", "t", [Column("id", "BIGINT")], options={"bucket": "-1"})
    writers = []
    for number in range(2):
        # Machines do not share the folder of local locks.
        own = tmp_path / str(number)
        own.mkdir()
        writers.append(
            subprocess.Popen(
                [sys.executable, "-c", WRITER, lake, str(1000 * number), str(COMMITS)],
                env={**os.environ, "TMPDIR": str(own)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        )
    for writer in writers:
        assert writer.stdout is not None and writer.stdout.readline() == "ready\n"
    for writer in writers:
        writer.communicate("go\n", timeout=DEADLINE_S)
    assert [writer.returncode for writer in writers] == [0, 0]
    table = Warehouse(lake).table("shop.t")
    found = sorted(value for batch in table.read() for value in batch["id"].to_pylist())
    assert found == [*range(COMMITS), *range(1000, 1000 + COMMITS)]
    assert table.latest_snapshot_id() == 2 * COMMITS
    assert ".commit-lock" not in [name for name, _ in table.files.names(table.location)]


def test_one_holder_at_a_time(lake: str, files: ObjectFiles) -> None:
    path, inside, most = f"{lake}/.commit-lock", 0, 0
    guard = threading.Lock()

    def work() -> None:
        nonlocal inside, most
        with object_lock(files, path, DEADLINE_S, "testing"):
            with guard:
                inside += 1
                most = max(most, inside)
            time.sleep(0.02)
            with guard:
                inside -= 1

    threads = [threading.Thread(target=work) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_S)
    assert (most, files.names(lake)) == (1, [])


def test_a_waiter_gives_up(lake: str, files: ObjectFiles) -> None:
    path = f"{lake}/.commit-lock"
    with object_lock(files, path, DEADLINE_S, "testing"):
        with pytest.raises(CommitConflictError, match=f"process {os.getpid()} on"):
            with object_lock(files, path, 0.1, "testing"):
                pass


def test_the_lock_of_a_dead_holder_is_taken_over(
    lake: str, files: ObjectFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "LEASE_S", 0.5)
    path = f"{lake}/.commit-lock"
    assert files.create(path, '{"id": "dead", "host": "h", "process": 1}') is not None
    started = time.monotonic()
    with object_lock(files, path, DEADLINE_S, "testing"):
        assert time.monotonic() - started >= 0.5
    assert files.names(lake) == []


def test_a_holder_renews_its_lock(
    lake: str, files: ObjectFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "_RENEW_S", 0.05)
    path, texts = f"{lake}/.commit-lock", set[str]()
    with object_lock(files, path, DEADLINE_S, "testing"):
        for _ in looks():
            texts.add(files.read_text(path) or "")
            if len(texts) == 4:
                break


class _Renewed:
    """A lock object that its holder renews between all requests of a waiter."""

    def __init__(self) -> None:
        self._etags = itertools.count()

    def create(self, path: str, text: str) -> None:
        return None

    def read(self, path: str) -> tuple[str, str]:
        return '{"id": "x", "host": "h", "process": 1}', str(next(self._etags))


def test_a_renewed_lock_is_not_taken_over(monkeypatch: pytest.MonkeyPatch) -> None:
    now, renewed = [0.0], cast(ObjectFiles, _Renewed())
    clock = SimpleNamespace(
        monotonic=lambda: now[0], sleep=lambda seconds: now.append(now.pop() + seconds)
    )
    monkeypatch.setattr(locks, "time", clock)
    with pytest.raises(CommitConflictError), object_lock(renewed, "a/b/c", 60.0, "testing"):
        pass
    assert now[0] > 60.0 > locks.LEASE_S


def test_a_holder_that_lost_its_lock_fails(
    lake: str, files: ObjectFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "LEASE_S", 0.0)
    path = f"{lake}/.commit-lock"
    with pytest.raises(StreamhouseError, match="another took the lock"):
        with object_lock(files, path, DEADLINE_S, "testing"):
            files.write_text(path, '{"id": "other", "host": "h", "process": 1}')
    assert files.read_text(path) is not None, "the lock of the other stays"


@pytest.mark.parametrize("fault", [Fault.CUT_AFTER, Fault.REFUSED_AFTER])
def test_a_lost_answer_is_no_other_holder(lake: str, s3: S3Server, fault: Fault) -> None:
    with FaultyProxy(s3.port) as proxy:
        files = ObjectFiles(lake, s3.options(proxy.url))

        def choose(request: Request) -> Fault | None:
            return fault if request.method == "PUT" and len(proxy.injected) < 1 else None

        proxy.choose = choose
        with object_lock(files, f"{lake}/.commit-lock", 5.0, "testing"):
            assert len(proxy.injected) == 1


def test_a_store_without_conditions_is_refused(
    lake: str, files: ObjectFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "_conditional", {})
    send = ObjectFiles.send

    def ignoring(objects: ObjectFiles, operation: str, path: str, **given: Any) -> Answer:
        body = {"Body": given["Body"]} if "Body" in given else {}
        return send(objects, operation, path, **body)

    monkeypatch.setattr(ObjectFiles, "send", ignoring)
    with pytest.raises(StreamhouseError, match="'s3.conditional-writes' to 'false'"):
        with object_lock(files, f"{lake}/.commit-lock", 5.0, "testing"):
            pass


def test_one_machine_may_do_without_conditions(lake: str, s3: S3Server) -> None:
    warehouse = Warehouse({"warehouse": lake, "s3.conditional-writes": "false"})
    warehouse.create_database("shop")
    assert warehouse.databases() == ["shop"]
