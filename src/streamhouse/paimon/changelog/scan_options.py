"""The `scan.*` options: where a stream over a table starts, and how it reads overwrites."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from streamhouse.errors import OptionError
from streamhouse.options import boolean, check_known, choice, integer
from streamhouse.paimon.changelog.consumer_progress import CONSUMER_KEYS, ConsumerOptions
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.read.visibility import PRODUCED, VisibleAt, changes_visible, producer

_MODES = {
    "default": "full",
    "full": "full",
    "latest-full": "full",
    "latest": "latest",
    "from-snapshot": "snapshot",
    "from-snapshot-full": "snapshot-full",
}
SCAN_KEYS = ("scan.mode", "scan.snapshot-id", "scan.overwrite", "scan.remove-normalize")
TABLE_KEYS = ("source.split.target-size", "source.split.open-file-cost", "read.batch-size")
"""Paimon options that determine how a scan is split, not what it reads."""


@dataclass(frozen=True)
class ScanOptions:
    """The options of a stream over a table.

    `start` is `full` (the newest snapshot, then changes), `latest` (changes from now on),
    `snapshot` (changes from `snapshot_id` on) or `snapshot-full` (all of `snapshot_id`, then
    changes). `overwrite` is what the stream returns for an OVERWRITE snapshot: its `difference`
    from the snapshot before, an `error`, or nothing (`skip`). With `raw`, the rows of a primary-key
    table whose compaction writes no changelog are returned as they were written, instead of the
    changes that they made. With a `consumer`, a stream continues where the last one of that id
    stopped; `start` is for the first.
    """

    start: str = "full"
    snapshot_id: int | None = None
    overwrite: str = "difference"
    raw: bool = False
    table_options: tuple[tuple[str, str], ...] = ()
    consumer: ConsumerOptions | None = None

    def visible_at(self, table: Table) -> VisibleAt:
        """When the changes that a stream with these options reads become visible."""
        if self.raw and producer(table.options) not in PRODUCED:
            return "commit"
        return changes_visible(table)

    @classmethod
    def parse(cls, options: Mapping[str, str], where: str) -> ScanOptions:
        """Parse options; raises `OptionError` for unknown ones and wrong values."""
        check_known(options, (*SCAN_KEYS, *CONSUMER_KEYS, *TABLE_KEYS), where)
        snapshot_option = options.get("scan.snapshot-id")
        snapshot_id = (
            None if snapshot_option is None else integer("scan.snapshot-id", snapshot_option, 1)
        )
        default = "default" if snapshot_id is None else "from-snapshot"
        mode = options.get("scan.mode", "default")
        if mode == "default":
            mode = default
        start = _MODES[choice("scan.mode", mode, _MODES)]
        if start.startswith("snapshot") and snapshot_id is None:
            raise OptionError(f"{where}: scan.mode '{mode}' needs the option 'scan.snapshot-id'")
        if snapshot_id is not None and not start.startswith("snapshot"):
            raise OptionError(
                f"{where}: 'scan.snapshot-id' cannot be combined with scan.mode '{mode}'; write "
                "'from-snapshot' or 'from-snapshot-full'"
            )
        overwrite = choice(
            "scan.overwrite", options.get("scan.overwrite", _OVERWRITE[0]), _OVERWRITE
        )
        raw = boolean("scan.remove-normalize", options.get("scan.remove-normalize", "false"))
        table = tuple((key, options[key]) for key in TABLE_KEYS if key in options)
        consumer = ConsumerOptions.parse(options, where)
        return cls(start, snapshot_id, overwrite, raw, table, consumer)


_OVERWRITE = ("difference", "error", "skip")
