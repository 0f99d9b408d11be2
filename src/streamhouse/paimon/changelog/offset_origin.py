"""Identifies the table that an offset was taken from, so that it is not used for another one.

An offset of `paimon.changelog.stream_source` has under `of`:

- `table`: a digest of the table's first schema file. A table that is dropped and created again has
  another one; a renamed or altered table keeps it.
- `time`: the commit time (epoch ms) of the offset's snapshot. After a rollback, another commit may
  get the snapshot's id.
- `changes`: when changes become visible (`paimon.read.visibility`). Up to the same snapshot, a
  reader of `changelog-producer` = `lookup` has seen fewer rows than one of `none`.
"""

from streamhouse.errors import DataLossError
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.read.visibility import VisibleAt
from streamhouse.paimon.storage.snapshots import ANEW
from streamhouse.paimon.storage.table_identity import Identity
from streamhouse.source import Offset

OF = "of"


def bare(offset: Offset) -> Offset:
    """The offset without `of`."""
    return {key: value for key, value in offset.items() if key != OF}


class Origin:
    """Adds `of` to the offsets of one source, and checks it in offsets; driver only.

    `changes` is when the changes that the source reads become visible.
    """

    def __init__(self, changes: VisibleAt) -> None:
        self._changes = changes
        self._identity: Identity | None = None

    def stamped(self, table: Table, offset: Offset) -> Offset:
        """The offset with `of`."""
        snapshot = int(offset.get("snapshot", 0))
        if not offset:
            return offset
        of: Offset = {"table": self._identified(table).digest, "changes": self._changes}
        if snapshot and not offset.get("resumed"):
            of["time"] = table.snapshot(snapshot).time_ms
        return {**offset, OF: of}

    def check(self, table: Table, offset: Offset, changes: VisibleAt, sure: bool = True) -> None:
        """Raise `DataLossError` if the table is not the one that `offset` was taken from.

        `changes` is when the table's changes become visible now. Unless `sure`, an object store is
        queried only every few seconds. An offset without `of` is not checked.
        """
        of = offset.get(OF)
        if not of:
            return
        name = table.identifier
        if of["changes"] != changes:
            raise DataLossError(
                f"table {name}: its changes became visible at {of['changes']} and now become "
                f"visible at {changes}: its 'changelog-producer' was changed, so rows would be "
                f"lost or read twice; set the option back to continue, or {ANEW}"
            )
        identity = self._identified(table)
        snapshot = int(offset["snapshot"])
        # An offset without `time` only names its snapshot, which is then not checked.
        checked_snapshot = snapshot if "time" in of else 0
        if identity.digest == of["table"] and identity.is_unchanged(
            checked_snapshot, of.get("time", 0), sure
        ):
            return
        self._identity = None
        if self._identified(table).digest != of["table"]:
            raise DataLossError(
                f"table {name}: the offset to continue from is of another table; {name} was "
                f"dropped and created again, or the query read another table before; {ANEW}"
            )
        raise DataLossError(
            f"table {name}: snapshot {snapshot} was read, but the newest is now "
            f"{table.latest_snapshot_id()}: the table was rolled back, and no longer has the rows "
            f"that were read; {ANEW}"
        )

    def _identified(self, table: Table) -> Identity:
        if self._identity is None:
            self._identity = Identity(table)
        return self._identity
