"""Computed columns and watermarks in a Paimon table's options, as Paimon's Flink catalog has them.

The options `schema.<place>.name` and `schema.<place>.expr` define a column; the place is its index
among all columns of the table.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from streamhouse.sql.plan import Column, ComputedColumn, Name, TableInfo, Watermark
from streamhouse.sql.statements.watermark import EXPRESSION_OPTION, TIME_OPTION
from streamhouse.sql.views.stored_view import as_readers_see_it

if TYPE_CHECKING:
    from streamhouse.paimon.read.system_tables import SystemTable
    from streamhouse.paimon.read.table import Table

_KEY = re.compile(r"schema\.(\d+)\.(.+)")


def options_of(
    computed: Sequence[ComputedColumn], watermark: Watermark | None = None
) -> dict[str, str]:
    """The options that define computed columns and a watermark."""
    options: dict[str, str] = {}
    if watermark is not None:
        options |= {TIME_OPTION: watermark.column, EXPRESSION_OPTION: watermark.expression}
    for column in computed:
        options[f"schema.{column.place}.name"] = column.name
        options[f"schema.{column.place}.expr"] = column.expression
    return options


def computed_of(options: Mapping[str, str]) -> tuple[ComputedColumn, ...]:
    """The computed columns that a table's options define, in the order of their places."""
    parts: dict[int, dict[str, str]] = {}
    for key, value in options.items():
        match = _KEY.fullmatch(key)
        if match is not None:
            parts.setdefault(int(match[1]), {})[match[2]] = value
    return tuple(
        ComputedColumn(part["name"], part["expr"], place)
        for place, part in sorted(parts.items())
        if "name" in part and "expr" in part
    )


def declared_names(columns: Sequence[Column], options: Mapping[str, str]) -> list[str]:
    """The names of a table's columns, stored and computed, in the order of their declaration."""
    info = TableInfo((), tuple(columns), computed_of(options))
    return [column.name for column in info.declared]


def placed(options: Mapping[str, str], order: Sequence[str]) -> dict[str, str | None]:
    """The options to set (None: to remove) so that the computed columns stand as in `order`."""
    old = {key: value for key, value in options.items() if _KEY.fullmatch(key)}
    new = {}
    names = {column.place: column.name for column in computed_of(options)}
    for key, value in old.items():
        place, part = key.removeprefix("schema.").split(".", 1)
        if int(place) in names:
            new[f"schema.{order.index(names[int(place)])}.{part}"] = value
        else:
            new[key] = value
    changes: dict[str, str | None] = {key: None for key in old if key not in new}
    return changes | {key: value for key, value in new.items() if old.get(key) != value}


def stored_table(name: Name, table: Table | SystemTable) -> TableInfo:
    """The record of a stored table for the analysis of queries."""
    computed = computed_of(table.options)
    column, expression = table.options.get(TIME_OPTION), table.options.get(EXPRESSION_OPTION)
    watermark = None if column is None or expression is None else Watermark(column, expression)
    own = options_of(computed, watermark)
    info = TableInfo(
        name, tuple(table.columns), computed, tuple(table.primary_key), tuple(table.partition_keys),
        {key: value for key, value in table.options.items() if key not in own},
        watermark=watermark,
    )  # fmt: skip
    return as_readers_see_it(info)
