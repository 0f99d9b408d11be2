"""The checkpoint folder of one query.

A query is identified by the name of its pipeline and its target table; the queries of a UNION ALL
also by the table that they read, see `runtime.shared_target`. The folder holds the query's logs
(`metadata`, `offsets`, `commits`), `lock` (the process that runs the query), `query.json` (the
query of the last run), `last-commit.json`, `former.json` (ids of earlier queries whose rows were
kept, see `reset`) and, while the query runs, `run` (files that its tasks and its driver exchange;
only its owner may read it, since they can have rows and the options of sources).
"""

import fcntl
import json
import os
import shutil
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote, unquote

from streamhouse.durable_files import read_json, replace_json
from streamhouse.errors import DataLossError, StreamhouseError
from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.paimon.changelog.consumers import CHECKPOINT_LOCK
from streamhouse.paimon.storage.files import is_local, local_path
from streamhouse.runtime.monitoring.process import started
from streamhouse.runtime.state.batch_logs import BatchLogs
from streamhouse.sql.options.store_options import s3_location

FOLDER = ".checkpoints"
"""The folder of checkpoints in a local warehouse, next to its databases."""
VIEWS = "materialized views"
"""The folder of the checkpoints of views, in the place of a pipeline's name."""

_FORMER, _QUERY, _LAST_COMMIT = "former.json", "query.json", "last-commit.json"


def checkpoints_of(warehouse: str) -> Path:
    """The default folder of checkpoints: in a local warehouse, else in the user's state folder.

    The logs need a file system. For a warehouse in an object store the folder is
    `streamhouse/checkpoints` in `XDG_STATE_HOME` (default `~/.local/state`), with a folder for each
    warehouse (decision 180).
    """
    if is_local(warehouse):
        return Path(local_path(warehouse)) / FOLDER
    base = os.environ.get("XDG_STATE_HOME")
    root = Path(base) if base and Path(base).is_absolute() else Path.home() / ".local" / "state"
    place = quote(s3_location(warehouse).rstrip("/"), safe="")
    return root / "streamhouse" / "checkpoints" / place


def pipeline_folder(root: Path, pipeline: str) -> Path:
    """The folder with the checkpoints of a pipeline's queries."""
    folder = quote(pipeline, safe=" ")
    return (root / (f"%2E{folder[1:]}" if folder.startswith(".") else folder)).absolute()


def pipeline_of(checkpoint: Path) -> str:
    """The name of the pipeline that a checkpoint's folder belongs to."""
    return unquote(checkpoint.parent.name)


def former_ids(checkpoint: Path) -> list[str]:
    """Ids of the queries of a checkpoint before `Checkpoint.clear` whose rows were kept."""
    return list(read_json(checkpoint / _FORMER) or ())


class Checkpoint:
    """The checkpoint folder of one query; `logs`: the batches that it has planned and done."""

    def __init__(self, root: Path, pipeline: str, target: str) -> None:
        self.root, self.pipeline = root, pipeline
        self.path = pipeline_folder(root, pipeline) / target
        self.logs = BatchLogs(self.path)
        self._lock: int | None = None

    @classmethod
    def of_view(cls, address: TableAddress) -> Self:
        """The checkpoint of a view in the default folder of its warehouse."""
        return cls(checkpoints_of(address.warehouse["warehouse"]), VIEWS, address.identifier)

    def acquire(self, wait_s: float = 30.0) -> None:
        """Lock the query for this process; waits up to `wait_s` seconds for one that is dying.

        The operating system releases the lock when this process ends in any way. Raises
        `StreamhouseError` if another process runs the query.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        handle = os.open(self.path / CHECKPOINT_LOCK, os.O_RDWR | os.O_CREAT, 0o644)
        deadline = time.monotonic() + wait_s
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                holder = os.pread(handle, 32, 0).decode().strip() or "unknown"
                alive = holder.isdigit() and started(int(holder)) is not None
                if time.monotonic() >= deadline or alive:
                    os.close(handle)
                    raise StreamhouseError(
                        f"the query in {self.path} is already running (process {holder}); "
                        "stop that one first, or (unless it is a materialized view) set another "
                        "'pipeline.name'"
                    ) from None
                time.sleep(0.1)
        os.ftruncate(handle, 0)
        os.pwrite(handle, str(os.getpid()).encode(), 0)
        self._lock = handle
        self.logs.remove_incomplete()

    def release(self) -> None:
        """Release the lock, so that another process can run the query."""
        if self._lock is not None:
            os.ftruncate(self._lock, 0)
            os.close(self._lock)
            self._lock = None

    def known_id(self) -> str | None:
        """The query id in `metadata`; None before the first run, or if the file is damaged."""
        try:
            return str(json.loads((self.path / "metadata").read_text())["id"])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def clear(self, former: Sequence[str] = ()) -> None:
        """Delete the checkpoint, so that the next run starts a new query.

        `former` is what `former_ids` returns from now on. The lock file stays: another process may
        be waiting for it.
        """
        for entry in self.path.iterdir():
            if entry.name == CHECKPOINT_LOCK:
                continue
            if entry.is_dir():
                shutil.rmtree(entry)
            else:
                entry.unlink()
        if former:
            replace_json(self.path / _FORMER, list(former))

    def take(self, other: Self) -> None:
        """Move the checkpoint of another query here, in place of this one; both are locked.

        The offsets are moved last. A query without them, or with a part of the rest, begins anew.
        """
        self.clear()
        left = ("run", "offsets", CHECKPOINT_LOCK)
        for entry in [each for each in other.path.iterdir() if each.name not in left]:
            entry.rename(self.path / entry.name)
        (other.path / "offsets").rename(self.path / "offsets")

    def query_id(self) -> str:
        """The query id in the file `metadata`, which is created here if the query is new."""
        path = self.path / "metadata"
        if not path.exists():
            replace_json(path, {"id": str(uuid.uuid4())})
        query_id = self.known_id()
        if query_id is None:
            raise StreamhouseError(
                f"{path} is damaged; the query cannot resume from it. Run the script once with "
                "--from-scratch to compute its targets anew"
            )
        return query_id

    def run_folder(self) -> Path:
        """An empty folder for this run; deletes the files of a crashed run."""
        path = self.path / "run"
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(mode=0o700)
        return path

    def previous(self) -> dict[str, Any] | None:
        """The last record of `remember`; None before the first."""
        record: dict[str, Any] | None = read_json(self.path / _QUERY)
        return record

    def remember(self, record: dict[str, Any]) -> None:
        """Store what the query computes in `query.json`."""
        replace_json(self.path / _QUERY, record)


def checkpoints_for(root: Path, pipeline: str, target: str) -> list[Checkpoint]:
    """All checkpoints of a pipeline for a target: the target's own, then those of UNION ALL parts.

    The first is listed even if its folder does not exist. Parts that the script no longer has are
    included.
    """
    folder = pipeline_folder(root, pipeline)
    names = sorted(os.listdir(folder)) if folder.exists() else []
    parts = [name for name in names if name.startswith(f"{target}+")]
    return [Checkpoint(root, pipeline, name) for name in (target, *parts)]


class LastCommit:
    """The last commit of a query to its target, recorded every few seconds; driver only.

    A target that lacks it is an older copy, or was rolled back: the query would not write its rows
    again.
    """

    def __init__(self, target: TableAddress | None, query_id: str, folder: Path) -> None:
        """`folder` is the checkpoint's. `target`: None if it is no Paimon table; then nothing is
        recorded."""
        self._target, self._user = target, query_id
        self._path = folder / _LAST_COMMIT
        self._seen = 0
        """Up to which snapshot the target's commits are known."""

    def note(self) -> None:
        """Record the newest commit of the query that its target has."""
        if self._target is None:
            return
        table = self._target.follow()
        latest = table.latest_snapshot_id() or 0
        last = table.snapshots.last_commit_of(self._user, self._seen, latest)
        self._seen = latest
        if last is not None:
            commit = {"batch": last.commit_identifier, "snapshot": last.id, "time": last.time_ms}
            replace_json(self._path, commit)

    def check(self) -> None:
        """Raise `DataLossError` if the target no longer has the recorded commit."""
        record = None if self._target is None else read_json(self._path)
        if self._target is None or record is None:
            return
        snapshots = self._target.open().snapshots
        found = snapshots.find(record["snapshot"])
        if found is not None and found.time_ms == record["time"]:
            return
        if found is None and record["snapshot"] < (snapshots.earliest_id() or 0):
            return
        raise DataLossError(
            f"table {self._target.identifier} lacks snapshot {record['snapshot']}, in which the "
            f"query in {self._path.parent} has written its batch {record['batch']}: the table is "
            "an older copy, or was rolled back, and its rows would not be written again; run the "
            "script once with --from-scratch to compute its targets anew"
        )
