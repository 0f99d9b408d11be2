"""Iceberg metadata of Paimon tables, by the option `metadata.iceberg.storage`."""

from collections.abc import Mapping, Sequence

STORAGE = "metadata.iceberg.storage"
_DISABLED = "disabled"
_REWRITE = "compaction.force-rewrite-all-files"
_FILES = ("table-location", "hadoop-catalog")


def has_iceberg_metadata(options: Mapping[str, str]) -> bool:
    """Whether Iceberg metadata is written for a table with these options."""
    return options.get(STORAGE, _DISABLED) in _FILES


def implied_options(primary_key: Sequence[str], options: Mapping[str, str]) -> dict[str, str]:
    """Options that a table with Iceberg metadata needs: its compactions rewrite all files.

    Iceberg's readers find columns by ids, which the files of a table with a primary key that the
    Rust core writes do not have. A compaction may otherwise keep such a file as it is.
    """
    if not (primary_key and has_iceberg_metadata(options)):
        return {}
    return {_REWRITE: options.get(_REWRITE, "true")}
