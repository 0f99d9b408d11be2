"""Columns of generated rows: the interface, ROW, ARRAY and MAP of parts, and their options."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from streamhouse.close_matches import nearest
from streamhouse.connectors.datagen.random_streams import RowNumbers, unit_interval
from streamhouse.errors import OptionError
from streamhouse.options import integer, share
from streamhouse.paimon.schema import types
from streamhouse.sql.plan import Column

ColumnValues: TypeAlias = Callable[[RowNumbers], pa.Array]
"""Generates a column, or a part of one: one value for each row."""


def _row(kind: pa.StructType, fields: Sequence[ColumnValues]) -> ColumnValues:
    """A ROW of other columns."""
    return lambda rows: pa.StructArray.from_arrays(
        [field(rows) for field in fields], fields=list(kind)
    )


def _array(kind: pa.ListType, element: ColumnValues, length: int) -> ColumnValues:
    """An ARRAY of `length` elements."""

    def values(rows: RowNumbers) -> pa.Array:
        offsets = pa.array(np.arange(len(rows) + 1, dtype=np.int32) * length)
        return pa.ListArray.from_arrays(offsets, element(rows.elements(length)), type=kind)

    return values


def _map(kind: pa.MapType, key: ColumnValues, value: ColumnValues, length: int) -> ColumnValues:
    """A MAP of at most `length` entries: those of an equal key are one."""

    def values(rows: RowNumbers) -> pa.Array:
        entries = rows.elements(length)
        of_row = np.repeat(np.arange(len(rows)), length)
        table = pa.table({"row": of_row, "key": key(entries), "at": np.arange(len(of_row))})
        first = table.group_by(["row", "key"], use_threads=False).aggregate([("at", "min")])
        kept = np.sort(first.column("at_min").to_numpy())
        counts = np.bincount(of_row[kept], minlength=len(rows))
        offsets = pa.array(np.concatenate([[0], np.cumsum(counts)]).astype(np.int32))
        keys = table.column("key").combine_chunks().take(pa.array(kept))
        items = value(entries).take(pa.array(kept))
        return pa.MapArray.from_arrays(offsets, keys, items, type=kind)

    return values


def _nullable(column: ColumnValues, name: str, rate: float) -> ColumnValues:
    """A column of which some values are null; `rate`: their share."""

    def values(rows: RowNumbers) -> pa.Array:
        absent = unit_interval(rows.bits(name, "null")) < rate
        return column(rows).take(pa.array(np.arange(len(rows)), mask=absent))

    return values


Leaf: TypeAlias = Callable[[str, str, bool], ColumnValues]
"""Makes a part without parts by its path (`place.city`) and type; True: it is a whole column."""


@dataclass(frozen=True)
class ColumnParts:
    """Makes the values of columns, and of their parts, by the options `fields.<path>.*`.

    `leaf` makes the parts without parts, which take the options `leaf_options`. `length` is the
    default of the elements of an ARRAY or MAP, `element` the name of the elements of an ARRAY in
    paths; empty: their path is that of the ARRAY.
    """

    options: Mapping[str, str]
    leaf: Leaf
    leaf_options: tuple[str, ...]
    length: str
    element: str

    def columns(self, columns: Sequence[Column]) -> list[ColumnValues]:
        """The values of the columns.

        Raises `OptionError` for no columns, an option of no column, one that its column does not
        take, and values that are not allowed.
        """
        if not columns:
            raise OptionError("the table has no physical column; declare one")
        parsed = {column.name: types.parse(column.type, column.nullable) for column in columns}
        known: dict[str, list[str]] = {}
        for path, kind in parsed.items():
            self._note_options(known, path, kind)
        for key in self.options:
            name, _, option = key.removeprefix("fields.").rpartition(".")
            if not key.startswith("fields."):
                continue
            if name not in known:
                raise OptionError(f"'{key}': there is no column '{name}'; {nearest(name, known)}")
            if option not in known[name]:
                raise OptionError(f"unknown option '{key}'; {nearest(option, known[name])}")
        return [self._values(path, kind, True) for path, kind in parsed.items()]

    def _note_options(self, known: dict[str, list[str]], path: str, kind: Any) -> None:
        """Note which options the parts of a type take, by their paths."""
        parts = self._parts(path, kind)
        own = ("null-rate",) if _word(kind) == "ROW" else ("null-rate", "length")
        known.setdefault(path, []).extend(self.leaf_options if parts is None else own)
        for name, inner in parts or ():
            self._note_options(known, name, inner)

    def _parts(self, path: str, kind: Any) -> list[tuple[str, Any]] | None:
        """The parts of a type with their paths; None for a type without."""
        match _word(kind):
            case "ROW":
                return [(f"{path}.{field['name']}", field["type"]) for field in kind["fields"]]
            case "ARRAY":
                return [(f"{path}.{self.element}".rstrip("."), kind["element"])]
            case "MAP":
                return [(f"{path}.key", kind["key"]), (f"{path}.value", kind["value"])]
        return None

    def _values(self, path: str, kind: Any, whole: bool = False) -> ColumnValues:
        parts = self._parts(path, kind)
        key = f"fields.{path}.null-rate"
        if parts is None:
            made = self.leaf(path, types.flink_text(kind), whole)
        else:
            made = self._nested(path, kind, [self._values(*part) for part in parts])
            if parts[0][0] == path:
                return made
        rate = share(key, self.options.get(key, "0"))
        if rate and str(kind if isinstance(kind, str) else kind["type"]).endswith(" NOT NULL"):
            raise OptionError(f"option '{key}': column '{path}' is NOT NULL; leave this option out")
        return _nullable(made, path, rate) if rate else made

    def _nested(self, path: str, kind: Any, made: list[ColumnValues]) -> ColumnValues:
        arrow, key = types.arrow_type(kind), f"fields.{path}.length"
        if _word(kind) == "ROW":
            return _row(arrow, made)
        length = integer(key, self.options.get(key, self.length), 0)
        if _word(kind) == "ARRAY":
            return _array(arrow, made[0], length)
        return _map(arrow, made[0], made[1], length)


def _word(kind: Any) -> str:
    """`ROW`, `ARRAY` or `MAP`; empty for a type without parts."""
    return "" if isinstance(kind, str) else str(kind["type"]).removesuffix(" NOT NULL")
