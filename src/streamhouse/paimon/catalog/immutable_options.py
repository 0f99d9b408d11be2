"""Table options that cannot be changed after creation, and why."""

from collections.abc import Mapping, Sequence

from streamhouse.errors import OptionError
from streamhouse.options import by_key, table_of
from streamhouse.paimon.read.rust_core import ignored_deletes
from streamhouse.paimon.read.rust_core.lookup_merge import has_levels, newest_level_counts
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.schema.options.option_columns import split_names
from streamhouse.paimon.schema.options.table_options import FIELD, value_type

_TABLE = table_of(__package__, "immutable_options.toml")
NEVER: Mapping[str, str] = _TABLE["never"]
_MERGED: str = _TABLE["merged"]
ONCE_FILLED = by_key(_TABLE["once_filled"])


def check_option(table: Table, key: str, value: str | None) -> None:
    """Raise `OptionError` if a table's option cannot be changed (`value` None: reset).

    Some options can be changed until the table has a snapshot.
    """
    options = table.options
    old = options.get(key)
    if _effective(key, value) == _effective(key, old):
        return
    where, filled = f"table {table.identifier}", table.latest_snapshot_id() is not None
    if key in NEVER:
        raise OptionError(f"{where}: option '{key}' cannot be changed: {NEVER[key]}; {_WORKAROUND}")
    if key in ONCE_FILLED and filled:
        raise OptionError(
            f"{where}: option '{key}' cannot be changed once the table has rows: "
            f"{ONCE_FILLED[key]}; {_WORKAROUND}"
        )
    if filled:
        _check_columns(table, key, merged_columns(key, old, value))
    if key == "deletion-vectors.enabled" and filled:
        if options.get("deletion-vectors.modifiable", "").lower() != "true":
            raise OptionError(
                f"{where}: option '{key}' cannot be changed once the table has rows, which would "
                "be read twice; SET ('deletion-vectors.modifiable' = 'true') first, and compact "
                "the table in full right after the change"
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


def _effective(key: str, value: str | None) -> str:
    """A value as readers take it: a missing one is the default, and case does not matter."""
    kind = value_type(key)
    own = _TABLE["defaults"].get(key, "false" if kind == "BOOLEAN" else "")
    return (own if value is None else value).lower() if kind != "STRING" else value or own


def merged_columns(key: str, old: str | None, new: str | None) -> Sequence[str]:
    """The columns that readers merge by an option `fields.<columns>.…`, and by another one.

    A sequence group may get or lose columns without values: the others are merged as before.
    """
    field = FIELD.fullmatch(key)
    if field is None or field["what"] == "stats-mode":
        return ()
    if field["what"] != "sequence-group" or old is None or new is None:
        names = split_names(f"{field['columns']},{old or new}")
        return names if field["what"] == "sequence-group" else split_names(field["columns"])
    return sorted({*split_names(old)} ^ {*split_names(new)})


def _check_columns(table: Table, key: str, columns: Sequence[str]) -> None:
    """Raise `OptionError` if readers would merge the stored values of columns differently."""
    if key.endswith(".ignore-retract") and not ignored_deletes.deleted_rows(table.splits()):
        return
    if columns and table.has_values(columns):
        raise OptionError(
            f"table {table.identifier}: option '{key}' cannot be changed once rows have values of "
            f"{' or '.join(repr(name) for name in columns)}: {_MERGED}; {_WORKAROUND}"
        )


def _check_deletes(table: Table, new: Mapping[str, str]) -> None:
    """Raise `OptionError` if ignoring deletes would bring back rows that have been deleted."""
    if ignored_deletes.ignores_deletes(new, table.primary_key):
        if ignored_deletes.deleted_rows(table.splits()):
            raise OptionError(
                f"table {table.identifier}: option '{ignored_deletes.OPTION}' would bring back the "
                "rows whose deletes are still in the table's files; compact it in full first: "
                f"CALL sys.compact('{table.identifier}')"
            )


def _check_levels(table: Table, new: Mapping[str, str], old: Mapping[str, str]) -> None:
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
