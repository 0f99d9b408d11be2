"""What pipelines tell of themselves, for whoever looks into their warehouse.

`<warehouse>/.pipelines/<name>/` holds of each

- `status.json`: a `Status`, replaced about once a second while something changes;
- `shown.sql`: its script, as it may be shown;
- where a server started it (`streamhouse.serve.pipelines.runner`): `script.sql`, `log`, `log.1`
  and `stop`, which says that a process was asked to end.

docs/decisions/071-the-status-of-a-pipeline.md says why.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal
from urllib.parse import quote, unquote

from streamhouse.errors import PipelineError, TableError
from streamhouse.options import nearest
from streamhouse.paimon.storage.files import Files, files_of
from streamhouse.runtime.monitoring.process import Process
from streamhouse.source import Lag

FOLDER = ".pipelines"
"""Where all this is in a warehouse, beside its databases."""
SCRIPT, STOP = "script.sql", "stop"
LOST_AFTER_S = 60.0
"""A pipeline of another machine that has told nothing for so long is taken for dead; so is one that
was to start and did not."""
_STATUS, _SHOWN = "status.json", "shown.sql"

State = Literal["starting", "running", "stopped", "failed"]


@dataclass(frozen=True)
class QueryStatus:
    """A continuous query; `name` tells it from the others. Times are epoch ms, `took_ms` is how
    long the last batch took.
    """

    name: str
    target: str
    sources: tuple[str, ...]
    lookups: tuple[str, ...]
    rows_per_second: float = 0.0
    rows: int = 0
    batches: int = 0
    last_batch_ms: int | None = None
    took_ms: float | None = None
    lag: Lag | None = None
    last_error: str | None = None


@dataclass(frozen=True)
class MaintenanceStatus:
    """What looks after the tables: `busy` counts those that are worked on now."""

    busy: int
    failures: int
    last_error: str | None = None
    last_error_ms: int | None = None


@dataclass(frozen=True)
class Status:
    """A pipeline; `process` is its own, or that of the server while it is `starting`.

    `error` is the last one, also of a run before that started itself anew; times are epoch ms.
    """

    name: str
    state: State
    process: Process
    began_ms: int
    updated_ms: int
    ended_ms: int | None = None
    error: str | None = None
    error_ms: int | None = None
    restarts: int = 0
    queries: tuple[QueryStatus, ...] = ()
    maintenance: MaintenanceStatus | None = None

    @property
    def lives(self) -> bool:
        return self.state in ("starting", "running")

    def text(self) -> str:
        """As JSON."""
        return _json(self)

    @staticmethod
    def parse(text: str) -> Status:
        """From `text`; ValueError, TypeError or KeyError for anything else."""
        told: dict[str, Any] = json.loads(text)
        told["process"] = Process(**told["process"])
        told["queries"] = tuple(_query(one) for one in told["queries"])
        if told["maintenance"] is not None:
            told["maintenance"] = MaintenanceStatus(**told["maintenance"])
        return Status(**told)


def _json(record: object) -> str:
    # Several times faster than by `asdict`, which copies.
    return json.dumps(record, default=vars)


def _query(told: dict[str, Any]) -> QueryStatus:
    lag = told.pop("lag")
    found = QueryStatus(**told, lag=None if lag is None else Lag(**lag))
    return replace(found, sources=tuple(found.sources), lookups=tuple(found.lookups))


class Statuses:
    """The pipelines of one warehouse; `options` are those of its catalog."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._root = f"{options['warehouse'].rstrip('/')}/{FOLDER}"
        self._options = options

    @cached_property
    def _files(self) -> Files:
        # What object stores need takes long to load.
        return files_of(self._options["warehouse"], self._options)

    def names(self) -> list[str]:
        """All names, sorted."""
        found = self._files.names(self._root)
        return sorted(unquote(name) for name, folder in found if folder)

    def read(self, name: str) -> Status | None:
        """What is true of a pipeline now; None if there is none of that name."""
        text = None if _too_long(name) else self._files.read_text(self.path(name, _STATUS))
        if text is None:
            return None
        try:
            status = replace(Status.parse(text), name=name)
        except (ValueError, TypeError, KeyError):
            # Written by another version of Streamhouse, or by no Streamhouse at all.
            return None
        return self._judged(status) if status.lives else status

    def write(self, status: Status) -> None:
        self._files.write_text(self.path(status.name, _STATUS), status.text())

    def shown(self, name: str) -> str | None:
        """A pipeline's script without its secrets."""
        return self._files.read_text(self.path(name, _SHOWN))

    def show(self, name: str, text: str) -> None:
        """Keep what `shown` gives."""
        self._files.write_text(self.path(name, _SHOWN), text)

    def path(self, name: str, file: str) -> str:
        """Where a file of a pipeline is."""
        folder = _folder(name)
        return f"{self._root}/{folder}/{file}"

    def has(self, name: str, file: str) -> bool:
        return self._files.exists(self.path(name, file))

    def ask_to_stop(self, name: str, process: Process) -> None:
        """Note that a process is about to be told to end: its death is no failure then."""
        self._files.write_text(self.path(name, STOP), _json(process))

    def forget(self, name: str) -> None:
        """Remove all that is kept of a pipeline that has ended; its checkpoints are not here.

        `TableError` if there is none of that name, `PipelineError` if it runs, or if some of its
        files are others' to remove.
        """
        known = self.names()
        if name not in known:
            raise TableError(f"there is no pipeline '{name}'; {nearest(name, known)}")
        status = self.read(name)
        if status is not None and status.lives:
            raise PipelineError(f"pipeline '{name}' runs; stop it first, and wait for its end")
        folder = f"{self._root}/{_folder(name)}"
        self._files.delete(folder)
        if self._files.names(folder):
            raise PipelineError(
                f"some files of pipeline '{name}' may not be removed by this user; do it as the "
                "one who ran it"
            )

    def _judged(self, status: Status) -> Status:
        """The status of a pipeline that was alive when it told so."""
        process, age_s = status.process, time.time() - status.updated_ms / 1000
        if status.state == "starting":
            if age_s < LOST_AFTER_S and (process.alive or not process.here):
                return status
            return _ended(status, "it did not start; its log says why")
        if process.alive or (not process.here and age_s < LOST_AFTER_S):
            return status
        if self._files.read_text(self.path(status.name, STOP)) == _json(process):
            return replace(status, state="stopped", ended_ms=status.updated_ms)
        if process.here:
            return _ended(status, f"it was killed: process {process.pid} is gone without a word")
        return _ended(
            status,
            f"nothing has been heard of it for {age_s:,.0f} s; it was process {process.pid} on "
            f"{process.host}",
        )


def _folder(name: str) -> str:
    folder = quote(name, safe=" ", errors="replace")
    return f"%2E{folder[1:]}" if folder.startswith(".") else folder


def _too_long(name: str) -> bool:
    """Whether no folder can be called so."""
    return len(_folder(name)) > 255


def _ended(status: Status, why: str) -> Status:
    at = status.updated_ms
    return replace(status, state="failed", ended_ms=at, error=why, error_ms=at)
