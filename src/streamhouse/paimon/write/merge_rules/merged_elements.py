"""Merges the elements within one value, as the merge function would with those of other rows.

A row that is alone in its key is stored without a merge. An array with duplicates in a `collect`
column with `distinct` kept them until a second row came, and likewise two elements of one
`nested-key`, a MAP's equal keys and the texts of a distinct `listagg`. So a writer merges them.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from streamhouse.paimon.read.table import Table
from streamhouse.sql.options.merge_functions import MERGING_ENGINES, merge_function

_Merge = Callable[[Any], Any]


class MergedElements:
    """The columns of a table whose values may have elements to merge."""

    def __init__(self, table: Table) -> None:
        found = {
            column.name: _merge(table.options, column.name)
            for column in table.columns
            if table.options.get("merge-engine") in MERGING_ENGINES
            and column.name not in table.primary_key
        }
        self._merges = {name: merge for name, merge in found.items() if merge is not None}

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch with merged elements in each value."""
        for name, merge in self._merges.items():
            index = batch.schema.get_field_index(name)
            if index >= 0:
                column = _merged(batch.column(index), merge)
                batch = batch.set_column(index, batch.schema.field(index), column)
        return batch


def _merge(options: Mapping[str, str], name: str) -> _Merge | None:
    def option(key: str, default: str = "") -> str:
        return options.get(f"fields.{name}.{key}", default)

    distinct = option("distinct").lower() == "true"
    function = merge_function(options, name)
    if function == "merge_map":
        return partial(_last_of_each, key=lambda entry: entry[0])
    if function == "collect" and distinct:
        return partial(_last_of_each, key=lambda element: element)
    if function == "listagg" and distinct:
        return partial(_distinct_texts, delimiter=option("list-agg-delimiter", ","))
    if function == "nested_update" and not option("nested-key-null-strategy"):
        fields, order = (_names(option(key)) for key in ("nested-key", "nested-sequence-field"))
        return partial(_nested, fields=fields, order=order, limit=int(option("count-limit", "0")))
    return None


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _merged(column: pa.Array, merge: _Merge) -> pa.Array:
    """The column with merged values; values of one element (not null) stay."""
    if pa.types.is_string(column.type):
        several = pc.is_valid(column)
    else:
        offsets, least = column.offsets, 0 if column.values.null_count else 1
        sizes = pc.subtract(offsets.slice(1), offsets.slice(0, len(column)))
        several = pc.greater(sizes, least)
    if not pc.any(several).as_py():
        return column
    values, places = column.to_pylist(), pc.indices_nonzero(several).to_pylist()
    changed = False
    for place in places:
        if values[place] is not None:
            value = merge(values[place])
            changed = changed or len(value) != len(values[place])
            values[place] = value
    return pa.array(values, column.type) if changed else column


def _last_of_each(elements: Iterable[Any], key: Callable[[Any], Any]) -> list[Any]:
    """The last element of each key, in the order of the first ones."""
    return list({repr(key(element)): element for element in elements}.values())


def _distinct_texts(text: str, delimiter: str) -> str:
    texts = text.split(delimiter) if delimiter else [text]
    if len(texts) == 1:
        return text
    return delimiter.join(dict.fromkeys(part for part in texts if part.strip()))


def _nested(elements: Iterable[Any], fields: list[str], order: list[str], limit: int) -> list[Any]:
    """As `nested_update`: the last row of each key (or that of the greatest sequence)."""
    kept: dict[str, Any] = {}
    for number, row in enumerate(row for row in elements if row is not None):
        key = repr([row[name] for name in fields]) if fields else str(number)
        if key not in kept and limit and len(kept) >= limit:
            continue
        if key in kept and order and _sequence(row, order) < _sequence(kept[key], order):
            continue
        kept[key] = row
    return list(kept.values())


def _sequence(row: Mapping[str, Any], order: list[str]) -> list[tuple[bool, Any]]:
    return [(row[name] is not None, row[name] if row[name] is not None else 0) for name in order]
