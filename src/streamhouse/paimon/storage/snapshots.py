"""The snapshots of a table, read from its snapshot files."""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass

from streamhouse.errors import DataLossError
from streamhouse.paimon.storage.files import Files, numbered_files

EXPIRY_USER = "streamhouse-expiry"
"""Commit user of partition expiry; streams do not read its OVERWRITE snapshots as changes."""

PURGE_USER = "streamhouse-purge"
"""Commit user of the compactions that remove the records that a statement has deleted."""

_SAME_ROWS = ("COMPACT", "ANALYZE")
"""Snapshots of these kinds change no row, except for purges."""

ANEW = (
    "to start anew, run the script with --from-scratch, or in Spark with a fresh checkpoint and an "
    "empty target"
)
"""Advice for a stream that cannot continue."""

_TORN_FILE_WAIT_S = 0.002
_TORN_FILE_TRIES = 50


@dataclass(frozen=True)
class Snapshot:
    """One snapshot; `time_ms` is its commit time in milliseconds since 1970, UTC.

    `commit_kind` is APPEND, COMPACT, OVERWRITE or ANALYZE; the record counts are None where an
    old writer left them out.
    """

    id: int
    commit_user: str
    commit_identifier: int
    commit_kind: str
    time_ms: int
    total_record_count: int | None
    delta_record_count: int | None
    changelog_record_count: int | None
    schema_id: int

    @property
    def purges(self) -> bool:
        """Whether it is the second commit of a DELETE, which may remove rows (decision 121)."""
        return self.commit_kind == "COMPACT" and self.commit_user == PURGE_USER

    @property
    def changes_rows(self) -> bool:
        """Whether it may add, change or remove rows."""
        return self.purges or self.commit_kind not in _SAME_ROWS


class Snapshots:
    """Snapshots below `root` (the table's location, or that of one of its branches)."""

    def __init__(self, files: Files, root: str, name: str) -> None:
        self._files = files
        self._folder = f"{root}/snapshot"
        self._name = name

    def latest_id(self, within_s: float = 0.0) -> int | None:
        """The newest snapshot's id; None in an empty table.

        The file `LATEST` is only a hint, which concurrent writers may set back. So this looks for
        later snapshots, too. `within_s`: how old the answer may be, in seconds; only
        `FollowedSnapshots` may be older than now.
        """
        hint = self._hint("LATEST")
        if hint is None or not self._files.exists(self._path(hint)):
            return max(self._ids(), default=None)
        while self._files.exists(self._path(hint + 1)):
            hint += 1
        return hint

    def verify(self) -> bool:
        """Whether no snapshot is kept that was replaced: by a rollback, or in a new table."""
        return True

    @property
    def replacements(self) -> int:
        """How often kept snapshots were found to be replaced, by any thread."""
        return 0

    def earliest_id(self) -> int | None:
        """The id of the oldest snapshot that has not expired; None in an empty table."""
        hint = self._hint("EARLIEST")
        if (
            hint is not None
            and self._files.exists(self._path(hint))
            and not self._files.exists(self._path(hint - 1))
        ):
            return hint
        return min(self._ids(), default=None)

    def names_earliest(self) -> bool:
        """Whether there is a file `EARLIEST`; without it, readers list all snapshots."""
        return self._hint("EARLIEST") is not None

    def get(self, snapshot_id: int) -> Snapshot:
        """One snapshot; if it has expired, `DataLossError` with the range of those left."""
        snapshot = self.find(snapshot_id)
        if snapshot is None:
            raise self.expired_error(snapshot_id)
        return snapshot

    def find(self, snapshot_id: int) -> Snapshot | None:
        """One snapshot; None if it does not exist, `DataLossError` if its file is damaged."""
        for _ in range(_TORN_FILE_TRIES):
            try:
                text = self._files.read_text(self._path(snapshot_id))
                return None if text is None else from_json(text)
            except ValueError:
                # The file is no JSON or UTF-8; perhaps it is still being written.
                time.sleep(_TORN_FILE_WAIT_S)
            except (KeyError, TypeError, AttributeError):
                break
        raise DataLossError(f"table {self._name}: the file of snapshot {snapshot_id} is damaged")

    def last_commit_of(
        self, user: str, above: int = 0, latest: int | None = None
    ) -> Snapshot | None:
        """The newest snapshot that `user` committed and that has not expired.

        None if there is none that is newer than the snapshot `above`. `latest` is the newest one,
        if the caller knows it.
        """
        for snapshot in self.newest_first(latest):
            if snapshot.id <= above:
                return None
            if snapshot.commit_user == user:
                return snapshot
        return None

    def changed_rows(self, after: int, until: int) -> bool:
        """Whether any snapshot in (`after`, `until`] has changed rows, or has expired."""
        snapshots = (self.find(number) for number in range(until, after, -1))
        return any(snapshot is None or snapshot.changes_rows for snapshot in snapshots)

    def newest_first(self, latest: int | None = None) -> Iterator[Snapshot]:
        """The snapshots from `latest` on, by default from the newest, back to the oldest."""
        snapshot_id = self.latest_id() if latest is None else latest
        while snapshot_id is not None and snapshot_id > 0:
            snapshot = self.find(snapshot_id)
            if snapshot is None:
                return
            yield snapshot
            snapshot_id -= 1

    def expired_error(self, snapshot_id: int, time_travel: bool = False) -> DataLossError:
        """The error for a snapshot that has expired, with advice for streams.

        A query with `time_travel` has no checkpoint from which it could start anew.
        """
        earliest, latest = self.earliest_id(), self.latest_id()
        remaining = (
            "no snapshots are left" if earliest is None else f"{earliest} to {latest} are left"
        )
        advice = "" if time_travel else f"; {ANEW}"
        return DataLossError(
            f"table {self._name}: snapshot {snapshot_id} is gone, {remaining}; keep more with the "
            f"table options snapshot.time-retained and snapshot.num-retained.min{advice}"
        )

    def _path(self, snapshot_id: int) -> str:
        return f"{self._folder}/snapshot-{snapshot_id}"

    def _hint(self, name: str) -> int | None:
        for _ in range(_TORN_FILE_TRIES):
            text = self._files.read_text(f"{self._folder}/{name}")
            if text is None:
                return None
            if text.strip().isdigit():
                return int(text)
            time.sleep(_TORN_FILE_WAIT_S)
        return None

    def _ids(self) -> list[int]:
        return numbered_files(self._files, self._folder, "snapshot-")


def from_json(text: str) -> Snapshot:
    """Parse the text of a snapshot file or of a tag file."""
    record: dict[str, object] = json.loads(text)

    def count(key: str) -> int | None:
        value = record.get(key)
        return value if isinstance(value, int) else None

    return Snapshot(
        id=count("id") or 0,
        commit_user=str(record["commitUser"]),
        commit_identifier=count("commitIdentifier") or 0,
        commit_kind=str(record["commitKind"]),
        time_ms=count("timeMillis") or 0,
        total_record_count=count("totalRecordCount"),
        delta_record_count=count("deltaRecordCount"),
        changelog_record_count=count("changelogRecordCount"),
        schema_id=count("schemaId") or 0,
    )
