"""Status files of pipelines in a warehouse.

`<warehouse>/.pipelines/<name>/` holds, for each pipeline:

- `status.json`: a `Status`, replaced about once a second while something changes;
- `shown.sql`: its script without secrets;
- if a server started it (`streamhouse.serve.pipelines.runner`): `script.sql`, `log`, `log.1` and
  `stop`, which names a process that is requested to end.

For the reasons see docs/decisions/071-pipelines-report-in-their-warehouse.md.
"""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal
from urllib.parse import quote, unquote

from streamhouse.close_matches import nearest
from streamhouse.errors import PipelineError, TableError
from streamhouse.paimon.storage.files import Files, files_of
from streamhouse.runtime.monitoring.metrics import QueryCounts
from streamhouse.runtime.monitoring.process import Process
from streamhouse.source import Lag

FOLDER = ".pipelines"
"""The folder of the status files in a warehouse, next to its databases."""
SCRIPT, STOP = "script.sql", "stop"
LOST_AFTER_S = 60.0
"""After so long without a status update, a pipeline of another machine counts as dead, and a
`starting` pipeline as failed."""
_STATUS, _MASKED_SCRIPT = "status.json", "shown.sql"
_LONGEST_NAME = 255

State = Literal["starting", "running", "stopped", "failed"]


@dataclass(frozen=True, kw_only=True)
class QueryStatus(QueryCounts):
    """The status of a continuous query; `name` is unique in its pipeline.

    `strategy`: how the last batch has kept the target up to date; `state_bytes`: what a view keeps,
    or a process of the tables that the query looks up; None for other queries.
    """

    name: str
    target: str
    sources: tuple[str, ...] = ()
    lookups: tuple[str, ...] = ()
    lag: Lag | None = None
    last_error: str | None = None
    strategy: str = "incremental"
    state_bytes: int | None = None

    @property
    def is_view(self) -> bool:
        """Whether its batches are refreshes of a view."""
        return self.strategy == "recomputed" or (self.state_bytes is not None and not self.lookups)


@dataclass(frozen=True)
class MaintenanceStatus:
    """The status of table maintenance; `busy` is the number of tables in work."""

    busy: int
    failures: int
    last_error: str | None = None
    last_error_ms: int | None = None


@dataclass(frozen=True)
class Status:
    """The status of a pipeline; `process` is its own, or the server's while it is `starting`.

    `error` is the last error, also of an earlier run after which the process restarted itself.
    Times are epoch ms.
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
    def is_live(self) -> bool:
        """Whether the pipeline is starting or running."""
        return self.state in ("starting", "running")


def _json(record: object) -> str:
    # Several times faster than `asdict`, which copies.
    return json.dumps(record, default=vars)


class Statuses:
    """The pipelines of one warehouse; `options` are those of its catalog."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._root = f"{options['warehouse'].rstrip('/')}/{FOLDER}"
        self._options = options

    @cached_property
    def _files(self) -> Files:
        # Libraries of object stores are slow to import.
        return files_of(self._options["warehouse"], self._options)

    def names(self) -> list[str]:
        """The names of all pipelines, sorted."""
        entries = self._files.names(self._root)
        return sorted(unquote(name) for name, folder in entries if folder)

    def read(self, name: str) -> Status | None:
        """The status of a pipeline, `failed` if its process has died; None if there is none."""
        if len(_folder(name)) > _LONGEST_NAME:
            return None
        text = self._files.read_text(self.path(name, _STATUS))
        if text is None:
            return None
        # Slow to import, and most processes only write their status.
        from streamhouse.connectors.json_records import from_json

        try:
            status = replace(from_json(Status, json.loads(text)), name=name)
        except ValueError:
            # Written by another version of Streamhouse, or by another program.
            return None
        return self._corrected(status) if status.is_live else status

    def write(self, status: Status) -> None:
        self._files.write_text(self.path(status.name, _STATUS), _json(status))

    def masked_script(self, name: str) -> str | None:
        """A pipeline's script without its secrets."""
        return self._files.read_text(self.path(name, _MASKED_SCRIPT))

    def store_masked_script(self, name: str, text: str) -> None:
        """Store the script that `masked_script` returns."""
        self._files.write_text(self.path(name, _MASKED_SCRIPT), text)

    def path(self, name: str, file: str) -> str:
        """The path of a file of a pipeline."""
        return f"{self._root}/{_folder(name)}/{file}"

    def find(self, name: str) -> Status:
        """The status of a pipeline; `TableError`, which names the nearest one, if there is none."""
        status = self.read(name)
        if status is None:
            raise TableError(f"there is no pipeline '{name}'; {nearest(name, self.names())}")
        return status

    def has(self, name: str, file: str) -> bool:
        return self._files.exists(self.path(name, file))

    def request_stop(self, name: str, process: Process) -> None:
        """Note that a process will be asked to end, so that its end does not count as a failure."""
        self._files.write_text(self.path(name, STOP), _json(process))

    def forget(self, name: str) -> None:
        """Remove the status files of a pipeline that has ended; its checkpoints stay.

        Raises `TableError` if there is none of that name, `PipelineError` if it runs, or if this
        user may not remove some of its files.
        """
        known = self.names()
        if name not in known:
            raise TableError(f"there is no pipeline '{name}'; {nearest(name, known)}")
        status = self.read(name)
        if status is not None and status.is_live:
            raise PipelineError(
                f"pipeline '{name}' is running; stop it first and wait until it has ended"
            )
        folder = f"{self._root}/{_folder(name)}"
        self._files.delete(folder)
        if self._files.names(folder):
            raise PipelineError(
                f"this user may not remove some files of pipeline '{name}'; remove it as the "
                "user who ran it"
            )

    def _corrected(self, status: Status) -> Status:
        """A `starting` or `running` status, corrected if its process has died meanwhile."""
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
            return _ended(
                status, f"it was killed: process {process.pid} ended without a final status"
            )
        return _ended(
            status,
            f"it has not reported its status for {age_s:,.0f} s; it was process {process.pid} on "
            f"{process.host}",
        )


def _folder(name: str) -> str:
    folder = quote(name, safe=" ", errors="replace")
    return f"%2E{folder[1:]}" if folder.startswith(".") else folder


def _ended(status: Status, error: str) -> Status:
    updated_ms = status.updated_ms
    return replace(status, state="failed", ended_ms=updated_ms, error=error, error_ms=updated_ms)
