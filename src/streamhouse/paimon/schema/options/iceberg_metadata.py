"""Tables that Iceberg's readers can read, too: the option `metadata.iceberg.storage`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from streamhouse.errors import OptionError

STORAGE = "metadata.iceberg.storage"
_DISABLED = "disabled"
_REWRITE = "compaction.force-rewrite-all-files"
_FILES = ("table-location", "hadoop-catalog")


def keeps_iceberg(options: Mapping[str, str]) -> bool:
    """Whether a table has Iceberg metadata beside its own."""
    return options.get(STORAGE, _DISABLED) in _FILES


def made_with(primary_key: Sequence[str], options: Mapping[str, str]) -> dict[str, str]:
    """Options that such a table needs besides: a compaction writes all files anew.

    Iceberg's readers find columns by ids, which the files of a table with a primary key that the
    Rust core writes do not have. A compaction may otherwise keep such a file as it is.
    """
    if not (primary_key and keeps_iceberg(options)):
        return {}
    return {_REWRITE: options.get(_REWRITE, "true")}


def check_iceberg(where: str, options: Mapping[str, str]) -> None:
    """Raise `OptionError` if the metadata is to be in a catalog that is not supported."""
    value = options.get(STORAGE, _DISABLED)
    if value not in (_DISABLED, *_FILES):
        raise OptionError(
            f"{where}: option '{STORAGE}': '{value}' is not supported, only {_DISABLED}, "
            f"{' and '.join(_FILES)}; register the table's newest metadata file with the catalog"
        )
