"""Table options that cannot be changed after creation, and why."""

from __future__ import annotations

from collections.abc import Mapping

from streamhouse.errors import OptionError
from streamhouse.paimon.catalog.alterable_table import AlterableTable
from streamhouse.paimon.read.rust_core import ignored_deletes
from streamhouse.paimon.read.rust_core.lookup_merge import has_levels, newest_level_counts
from streamhouse.paimon.schema.file_formats.orc_values import LTZ_OPTION

_NEVER = {
    "primary-key": "the primary key decides how every file is sorted",
    "partition": "partitions are folders of files",
    "type": "it decides what kind of table this is",
    "path": "existing files are not moved",
    "branch": "it is chosen by each read",
}
_ONCE_FILLED = {
    "bucket": "rows of a key must stay in their bucket",
    "bucket-key": "rows of a key must stay in their bucket",
    "bucket-function.type": "rows of a key must stay in their bucket",
    "dynamic-bucket.initial-buckets": "rows of a key must stay in their bucket",
    "data-file.path-directory": "existing files are not moved",
    "merge-engine": "existing rows were merged by the old one",
    "aggregation.remove-record-on-delete": "existing deletes were written for the old value",
    "partial-update.remove-record-on-delete": "existing deletes were written for the old value",
    "partial-update.remove-record-on-sequence-group": (
        "existing deletes were written for the old value"
    ),
    "rowkind.field": "existing rows were written with the old one",
    "sequence.snapshot-ordering": "existing rows were ordered by the old value",
    "force-lookup": "existing files were compacted by the old value",
    "row-tracking.enabled": "existing rows have no row ids",
    "data-evolution.enabled": "existing files have no row ids",
    "index-file-in-data-file-dir": "existing files are not moved",
    "pk-clustering-override": "existing files are sorted by the primary key",
    "blob-field": "existing files store such columns differently",
    "blob-descriptor-field": "existing files store such columns differently",
}


def check_option(
    table: AlterableTable, options: Mapping[str, str], key: str, value: str | None, filled: bool
) -> None:
    """Raise `OptionError` if a table's option cannot be changed (`value` None: reset).

    `filled` says that the table has a snapshot; some options can be changed until then.
    """
    old = options.get(key)
    if value == old:
        return
    where = f"table {table.identifier}"
    if key in _NEVER:
        raise OptionError(
            f"{where}: option '{key}' cannot be changed: {_NEVER[key]}; {_WORKAROUND}"
        )
    if key in _ONCE_FILLED and filled:
        raise OptionError(
            f"{where}: option '{key}' cannot be changed once the table has rows: "
            f"{_ONCE_FILLED[key]}; {_WORKAROUND}"
        )
    if key == "deletion-vectors.enabled" and filled:
        modifiable = options.get("deletion-vectors.modifiable", "false").lower() == "true"
        if not modifiable and (value or "false").lower() != (old or "false").lower():
            raise OptionError(
                f"{where}: option '{key}' cannot be changed once the table has rows, which would "
                "be read twice; SET ('deletion-vectors.modifiable' = 'true') first, and compact "
                "the table in full right after the change"
            )
    if key == LTZ_OPTION and filled and (value or "true").lower() != (old or "true").lower():
        raise OptionError(
            f"{where}: option '{key}' cannot be changed once the table has rows: existing ORC "
            f"files were written with the old value; {_WORKAROUND}"
        )
    if key == "changelog-producer" and filled:
        _check_levels(table, {**options, key: value or "none"}, options)
    if key in ("ignore-delete", "ignore-update-before") and (old or "").lower() == "true":
        raise OptionError(
            f"{where}: option '{key}' cannot be switched off: the ignored records were never "
            f"stored; {_WORKAROUND}"
        )
    if key == ignored_deletes.OPTION and filled:
        _check_deletes(table, {**options, key: value or "false"})


def _check_deletes(table: AlterableTable, new: Mapping[str, str]) -> None:
    """Raise `OptionError` if ignoring deletes would bring back rows that have been deleted."""
    if ignored_deletes.ignores_deletes(new, table.primary_key):
        if ignored_deletes.deleted_rows(table.splits()):
            raise OptionError(
                f"table {table.identifier}: option '{ignored_deletes.OPTION}' would bring back the "
                "rows whose deletes are still in the table's files; compact it in full first: "
                f"CALL sys.compact('{table.identifier}')"
            )


def _check_levels(table: AlterableTable, new: Mapping[str, str], old: Mapping[str, str]) -> None:
    """Raise `OptionError` if a table with several levels would then be merged differently.

    With lookup compaction, each level holds a key's whole value; otherwise, parts of it.
    """
    key = table.primary_key
    if newest_level_counts(new, key) != newest_level_counts(old, key):
        if any(map(has_levels, table.splits())):
            raise OptionError(
                f"table {table.identifier}: option 'changelog-producer' decides how files of "
                "several levels are merged, and the table has such files; compact it in full: "
                f"CALL sys.compact('{table.identifier}')"
            )


_WORKAROUND = "create a new table and fill it with INSERT INTO … SELECT"
