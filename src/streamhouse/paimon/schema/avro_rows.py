"""ROW values in Avro files, of which the Rust core loses some (decision 108).

Its reader looks up the fields of a ROW in the first value of a batch. If that value is null, all
fields of the batch's other values come out as nulls. A batch of one row has one value of each ROW
that lies in no array or map: read so, these are right. In an array or map there is no such way.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from streamhouse.errors import StreamhouseError, TableError

SUFFIX = b".avro"
_FORMATS = ("file.format", "changelog-file.format", "file.format.per.level")


@dataclass(frozen=True)
class RowColumns:
    """The columns with a ROW that may be null: `single` of them in no array or map."""

    single: frozenset[str]
    many: frozenset[str]

    @classmethod
    def of(cls, schema: pa.Schema) -> RowColumns:
        single = frozenset(field.name for field in schema if _may_be_null(field, False))
        many = frozenset(field.name for field in schema if _may_be_null(field, True))
        return cls(single, many)

    def one_by_one(self, table: str, columns: Collection[str], splits: Sequence[bytes]) -> bool:
        """Whether rows of splits are to be read one at a time where their files are Avro.

        `StreamhouseError` for columns that cannot be read.
        """
        if not (self.single or self.many) or not any(SUFFIX in split for split in splits):
            return False
        lost = sorted(self.many.intersection(columns))
        if lost:
            raise StreamhouseError(
                f"table {table}: ROW values inside the arrays or maps of '{lost[0]}' cannot be "
                "read from Avro files; leave the column out of the query, or rewrite the files: "
                "SET ('file.format' = 'parquet'), and compact the table in full with the option "
                "'compaction.force-rewrite-all-files' = 'true'"
            )
        return not self.single.isdisjoint(columns)


def check_columns(where: str, schema: pa.Schema, options: Mapping[str, str]) -> None:
    """Raise `TableError` for columns of a new table that could not be read."""
    lost = sorted(RowColumns.of(schema).many)
    if lost and any("avro" in options.get(key, "").lower() for key in _FORMATS):
        raise TableError(
            f"{where}: ROW values inside of arrays or maps, as in column '{lost[0]}', cannot be "
            "read from Avro files; set 'file.format' to 'parquet'"
        )


def _may_be_null(field: pa.Field, within: bool, inside: bool = False) -> bool:
    """Whether a field is or has a nullable ROW, `within` an array or map or in none."""
    if pa.types.is_struct(field.type) and field.nullable and inside == within:
        return True
    collection = pa.types.is_list(field.type) or pa.types.is_map(field.type)
    inside = inside or collection
    return any(_may_be_null(child, within, inside) for child in _children(field.type))


def _children(kind: pa.DataType) -> list[pa.Field]:
    if pa.types.is_map(kind):
        return [kind.key_field, kind.item_field]
    return [kind.field(place) for place in range(kind.num_fields)]
