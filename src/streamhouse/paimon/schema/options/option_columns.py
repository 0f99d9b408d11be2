"""Changes the table options that name a column when the column is renamed or dropped."""

import re
from collections.abc import Mapping

from streamhouse.errors import SchemaChangeError
from streamhouse.paimon.schema.options.table_options import FIELD, TABLE

COLUMN_LISTS: tuple[str, ...] = tuple(TABLE["column_lists"])
"""Options whose values are columns, divided by commas."""
INDEX = re.compile(r"file-index\.[a-z-]+\.columns")
_GROUP = "sequence-group"
"""The option of columns whose value are columns, too."""
_LIST_ENDS = (_GROUP, "nested-key", "nested-sequence-field")
_COMPUTED = re.compile(r"schema\.(\d+\.|watermark\.0\.strategy\.)expr")


def column_lists(options: Mapping[str, str]) -> dict[str, str]:
    """The options with lists of columns as the Java core reads them: without spaces."""
    lists = {key for key in options if key in COLUMN_LISTS or key.endswith(_LIST_ENDS)}
    return {
        key: ",".join(split_names(value)) if key in lists else value
        for key, value in options.items()
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
        field = FIELD.fullmatch(key)
        if field:
            name = f"fields.{_replaced(field['columns'], old, new)}.{field['what']}"
            if field["what"] == _GROUP:
                text = _replaced(value, old, new)
        elif key in COLUMN_LISTS or INDEX.fullmatch(key):
            text = _replaced(value, old, new)
        elif re.fullmatch(rf"file-index\.[a-z-]+\.{re.escape(old)}\..+", key):
            index_type, suffix = key.split(".")[1], key.split(f".{old}.", 1)[1]
            name = f"file-index.{index_type}.{new}.{suffix}"
        if (name, text) != (key, value):
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
        field = FIELD.fullmatch(key)
        group = field is not None and field["what"] == _GROUP
        remaining = ",".join(name for name in split_names(value) if name != column)
        if field and column in split_names(field["columns"]) and not group:
            changes[key] = None
        elif re.fullmatch(rf"file-index\.[a-z-]+\.{re.escape(column)}\..+", key):
            changes[key] = None
        elif INDEX.fullmatch(key) and column in split_names(value):
            changes[key] = remaining or None
        elif group and column in split_names(value) and remaining:
            changes[key] = remaining
        elif (key in COLUMN_LISTS and column in split_names(value)) or (
            field and group and column in split_names(f"{field['columns']},{value}")
        ):
            raise SchemaChangeError(
                f"{where}: the option '{key}' = '{value}' names column '{column}'; change "
                "that option first, or create a new table"
            )
    return changes


def _check_not_computed(options: Mapping[str, str], column: str, where: str) -> None:
    for key, expression in options.items():
        if _COMPUTED.fullmatch(key) and re.search(rf"(?<!\w){re.escape(column)}(?!\w)", expression):
            name = options.get(key.replace(".expr", ".name"))
            what = "watermark" if name is None else f"computed column '{name}'"
            raise SchemaChangeError(
                f"{where}: the {what} AS {expression} uses column '{column}'; "
                "create a new table with INSERT INTO … SELECT"
            )


def _replaced(text: str, old: str, new: str) -> str:
    if old not in split_names(text):
        return text
    return ",".join(new if name == old else name for name in split_names(text))


def split_names(text: str) -> list[str]:
    """The names in a list that is divided by commas."""
    return [name.strip() for name in text.split(",")]
