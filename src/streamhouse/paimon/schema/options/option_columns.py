"""Changes the table options that name a column when the column is renamed or dropped."""

from __future__ import annotations

import re
from collections.abc import Mapping

from streamhouse.errors import SchemaChangeError

_FIELDS = re.compile(r"fields\.(?P<columns>.+)\.(?P<what>[a-z-]+)")
_LISTS = (
    "bucket-key",
    "sequence.field",
    "changelog-producer.row-deduplicate-ignore-fields",
    "clustering.columns",
    "record-level.time-field",
    "rowkind.field",
)
_INDEX = re.compile(r"file-index\.(?P<kind>[a-z-]+)\.columns")
_VALUES = ("sequence-group", "nested-key", "nested-sequence-field")
_COMPUTED = re.compile(r"schema\.\d+\.expr")
_RENAMED_BY_PYPAIMON = ("bucket-key", "sequence.field")
"""Options that pypaimon's catalog changes itself when a column is renamed."""


def column_lists(options: Mapping[str, str]) -> dict[str, str]:
    """The options with lists of columns as the Java core reads them: without spaces."""
    return {
        key: ",".join(_split(value)) if key in _LISTS else value for key, value in options.items()
    }


def renamed(options: Mapping[str, str], old: str, new: str, where: str) -> dict[str, str | None]:
    """The options to set (None: to remove) when a column is renamed from `old` to `new`.

    `SchemaChangeError` if the column is the `rowkind.field`, or a computed column uses it.
    """
    _check_not_computed(options, old, where)
    if options.get("rowkind.field") == old:
        raise SchemaChangeError(
            f"{where}: column '{old}' is the table's 'rowkind.field', which cannot be changed; "
            "create a new table with INSERT INTO … SELECT"
        )
    changes: dict[str, str | None] = {}
    for key, value in options.items():
        name, text = key, value
        field = _FIELDS.fullmatch(key)
        if field:
            name = f"fields.{_replaced(field['columns'], old, new)}.{field['what']}"
            if field["what"] in _VALUES:
                text = _replaced(value, old, new)
        elif key in _LISTS or _INDEX.fullmatch(key):
            text = _replaced(value, old, new)
        elif re.fullmatch(rf"file-index\.[a-z-]+\.{re.escape(old)}\..+", key):
            index_type, suffix = key.split(".")[1], key.split(f".{old}.", 1)[1]
            name = f"file-index.{index_type}.{new}.{suffix}"
        if (name, text) != (key, value) and key not in _RENAMED_BY_PYPAIMON:
            if name != key:
                changes[key] = None
            changes[name] = text
    return changes


def dropped(options: Mapping[str, str], column: str, where: str) -> dict[str, str | None]:
    """The options to set (None: to remove) when a column is dropped.

    `SchemaChangeError` if another option or a computed column needs the column.
    """
    _check_not_computed(options, column, where)
    changes: dict[str, str | None] = {}
    for key, value in options.items():
        field = _FIELDS.fullmatch(key)
        if field and column in _split(field["columns"]) and field["what"] not in _VALUES:
            changes[key] = None
        elif re.fullmatch(rf"file-index\.[a-z-]+\.{re.escape(column)}\..+", key):
            changes[key] = None
        elif _INDEX.fullmatch(key) and column in _split(value):
            remaining = [name for name in _split(value) if name != column]
            changes[key] = ",".join(remaining) or None
        elif (key in _LISTS and column in _split(value)) or (
            field
            and field["what"] in _VALUES
            and column in [*_split(field["columns"]), *_split(value)]
        ):
            raise SchemaChangeError(
                f"{where}: the option '{key}' = '{value}' names column '{column}'; change "
                "that option first, or create a new table"
            )
    return changes


def _check_not_computed(options: Mapping[str, str], column: str, where: str) -> None:
    for key, expression in options.items():
        if _COMPUTED.fullmatch(key) and re.search(rf"(?<!\w){re.escape(column)}(?!\w)", expression):
            name = options.get(key.replace(".expr", ".name"), "?")
            raise SchemaChangeError(
                f"{where}: the computed column '{name}' AS {expression} uses column '{column}'; "
                "create a new table with INSERT INTO … SELECT"
            )


def _replaced(text: str, old: str, new: str) -> str:
    if old not in _split(text):
        return text
    return ",".join(new if name == old else name for name in _split(text))


def _split(text: str) -> list[str]:
    return [name.strip() for name in text.split(",")]
