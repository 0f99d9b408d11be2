"""Visibility: when readers see the rows of a table, and its changes.

Paimon shows committed rows of some tables only after a compaction, and the changes of others:

- `commit`: at once;
- `compaction`: once the files of level 0 are compacted (`first-row`, deletion vectors, and the
  changes of `changelog-producer` = `lookup`);
- `full-compaction`: once the files are on the top level (the changes of `changelog-producer` =
  `full-compaction`).

A stream over such a table waits until some process compacts it.
docs/decisions/012-one-sidecar-jvm.md says which process does;
`paimon.changelog.invisible_rows` counts the rows that are not visible yet.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

from streamhouse.options import boolean, integer
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.storage.split_files import SplitFrame

VisibleAt = Literal["commit", "compaction", "full-compaction"]

PRODUCED = ("lookup", "full-compaction")
"""The values of `changelog-producer` with which compactions write the changelog."""
EXPIRED_AFTER = "record-level.expire-time"
"""The option with which compactions remove old rows."""
LOOKUP_WAIT = ("lookup-wait", "changelog-producer.lookup-wait")
_DEFAULT_TRIGGER = 5
"""Default of `num-sorted-run.compaction-trigger`, on which the number of levels depends."""


def producer(options: Mapping[str, str]) -> str:
    """The `changelog-producer` of a table, in lower case."""
    return options.get("changelog-producer", "none").lower()


def rows_visible_at(keyed: bool, options: Mapping[str, str]) -> VisibleAt:
    """When a SELECT sees new rows of a table with (`keyed`) or without a primary key."""
    if not keyed:
        return "commit"
    vectors = options.get("deletion-vectors.enabled", "false")
    hidden = options.get("merge-engine", "").lower() == "first-row" or boolean(
        "deletion-vectors.enabled", vectors
    )
    return "compaction" if hidden else "commit"


def changes_visible_at(keyed: bool, options: Mapping[str, str]) -> VisibleAt:
    """When a stream over the table sees its changes.

    With `changelog-producer` = `none` and `input`, streams compute the changes from the rows, so
    both become visible together.
    """
    if not keyed:
        return "commit"
    match producer(options):
        case "lookup":
            return "compaction"
        case "full-compaction":
            return "full-compaction"
    return rows_visible_at(keyed, options)


def delaying_option(options: Mapping[str, str], visible_at: VisibleAt) -> str | None:
    """The option of a table, as `'key' = 'value'`, that delays `visible_at`; None if none does."""
    if visible_at == "commit":
        return None
    if boolean("write-only", options.get("write-only", "false")):
        return "'write-only' = 'true'"
    if visible_at == "full-compaction":
        key = "full-compaction.delta-commits"
        several = key in options and integer(key, options[key], 1) > 1
        return f"'{key}' = '{options[key]}'" if several else None
    if options.get("lookup-compact", "radical").lower() == "gentle":
        return "'lookup-compact' = 'gentle'"
    for key in LOOKUP_WAIT:
        if not boolean(key, options.get(key, "true")):
            return f"'{key}' = 'false'"
    return None


def all_visible_at(keyed: bool, options: Mapping[str, str]) -> VisibleAt:
    """When both the rows of a table and its changes are visible."""
    both = rows_visible_at(keyed, options), changes_visible_at(keyed, options)
    order: tuple[VisibleAt, ...] = ("commit", "compaction", "full-compaction")
    return max(both, key=order.index)


def least_level(options: Mapping[str, str], visible_at: VisibleAt) -> int:
    """The lowest level whose files readers see, if rows become visible at `visible_at`."""
    if visible_at == "commit":
        return 0
    if visible_at == "compaction":
        return 1
    # The level to which a full compaction writes.
    levels = options.get("num-levels")
    if levels is not None:
        return int(levels) - 1
    return int(options.get("num-sorted-run.compaction-trigger", _DEFAULT_TRIGGER))


def changes_visible(table: Table) -> VisibleAt:
    """When a stream over the table sees its changes."""
    return changes_visible_at(bool(table.primary_key), table.options)


def hides_new_rows(table: Table) -> bool:
    """Whether a SELECT sees new rows of the table only after a compaction."""
    return rows_visible_at(bool(table.primary_key), table.options) != "commit"


def compacted_only(table: Table, splits: Sequence[bytes], visible_at: VisibleAt) -> list[bytes]:
    """The splits without the files whose rows become visible only at `visible_at`.

    A `lookup` changelog covers all rows above level 0, a `full-compaction` changelog those on the
    top level. Rows on lower levels are left out: the changelog has them once they are compacted.
    """
    min_level = least_level(table.options, visible_at)
    kept = []
    for serialised in splits:
        frame = SplitFrame.parse(serialised)
        part = frame.only(lambda file: file.level >= min_level)
        if len(part.files) == len(frame.files):
            kept.append(serialised)
        elif part.files:
            kept.append(part.serialize())
    return kept
