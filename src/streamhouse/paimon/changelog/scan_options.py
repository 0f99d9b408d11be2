"""The `scan.*` options: where a stream over a table starts, and how it reads overwrites."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from streamhouse.errors import OptionError
from streamhouse.options import OptionValues, of_option, options_of, table_of
from streamhouse.paimon.changelog.consumer_progress import ConsumerOptions
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.read.visibility import PRODUCED, VisibleAt, changes_visible, producer

_TABLE = table_of(__package__, "stream_options.toml")
_OPTIONS = options_of(_TABLE["scan"] | _TABLE["consumer"] | _TABLE["table"])
SCAN_KEYS, TABLE_KEYS = tuple(_TABLE["scan"]), tuple(_TABLE["table"])
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
    snapshot_id: int | None = of_option("scan.snapshot-id", None)
    overwrite: str = of_option("scan.overwrite", "difference")
    raw: bool = of_option("scan.remove-normalize", False)
    table_options: tuple[tuple[str, str], ...] = ()
    consumer: ConsumerOptions | None = None

    def visible_at(self, table: Table) -> VisibleAt:
        """When the changes that a stream with these options reads become visible."""
        if self.raw and producer(table.options) not in PRODUCED:
            return "commit"
        return changes_visible(table)

    @classmethod
    def parse(cls, options: Mapping[str, str], where: str) -> Self:
        """Parse options; raises `OptionError` for unknown ones and wrong values."""
        values = OptionValues(_OPTIONS, options)
        values.check(where)
        snapshot_id, mode = values["scan.snapshot-id"], values["scan.mode"]
        if mode == "default" and snapshot_id is not None:
            mode = "from-snapshot"
        start = _TABLE["starts"][mode]
        if start.startswith("snapshot") and snapshot_id is None:
            raise OptionError(f"{where}: scan.mode '{mode}' needs the option 'scan.snapshot-id'")
        if snapshot_id is not None and not start.startswith("snapshot"):
            raise OptionError(
                f"{where}: 'scan.snapshot-id' cannot be combined with scan.mode '{mode}'; write "
                "'from-snapshot' or 'from-snapshot-full'"
            )
        table = tuple((key, options[key]) for key in TABLE_KEYS if key in options)
        consumer = ConsumerOptions.parse(options, where)
        return values.record(cls, start=start, table_options=table, consumer=consumer)
