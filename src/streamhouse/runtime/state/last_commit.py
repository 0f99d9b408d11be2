"""The last commit of a query to its target, which the checkpoint records every few seconds.

A target that lacks it is an older copy, or was rolled back: the query would not write its rows
again.
"""

from pathlib import Path

from streamhouse.durable_files import read_json, replace_json
from streamhouse.errors import DataLossError
from streamhouse.paimon.catalog.table_address import TableAddress

_NAME = "last-commit.json"


class LastCommit:
    """The record of one query's last commit, in its checkpoint's `folder`; driver only."""

    def __init__(self, target: TableAddress | None, query_id: str, folder: Path) -> None:
        """`target`: None if it is no Paimon table; then nothing is recorded."""
        self._target, self._user = target, query_id
        self._path = folder / _NAME
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
