"""ROW values in Avro files, which the Rust core may read as nulls (decision 105).

Its reader finds the fields of a ROW by their position in the first value of a batch. If that value
is null, it returns null for all fields of the batch's other values. A batch of one row has only one
value of each ROW outside arrays and maps, so the reader returns it correctly. ROWs inside arrays
and maps cannot be read correctly, and are refused.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import pyarrow as pa

from streamhouse.errors import StreamhouseError, TableError

SUFFIX = b".avro"
_FORMATS = ("file.format", "changelog-file.format", "file.format.per.level")


@dataclass(frozen=True)
class RowColumns:
    """The columns with a nullable ROW: `single` outside arrays and maps, `many` inside one."""

    single: frozenset[str]
    many: frozenset[str]

    @classmethod
    def of(cls, schema: pa.Schema) -> Self:
        single = frozenset(field.name for field in schema if _may_be_null(field, False))
        many = frozenset(field.name for field in schema if _may_be_null(field, True))
        return cls(single, many)

    def one_by_one(self, table: str, columns: Collection[str], splits: Sequence[bytes]) -> bool:
        """Whether the Avro files of splits must be read in batches of one row.

        `StreamhouseError` if there are such files and one of the columns has a nullable ROW inside
        an array or map.
        """
        if not (self.single or self.many) or not any(SUFFIX in split for split in splits):
            return False
        unreadable = sorted(self.many.intersection(columns))
        if unreadable:
            raise StreamhouseError(
                f"table {table}: ROW values inside the arrays or maps of '{unreadable[0]}' cannot "
                "be read from Avro files; leave the column out of the query, or rewrite the files: "
                "SET ('file.format' = 'parquet'), and compact the table in full with the option "
                "'compaction.force-rewrite-all-files' = 'true'"
            )
        return not self.single.isdisjoint(columns)


def check_columns(where: str, schema: pa.Schema, options: Mapping[str, str]) -> None:
    """Raise `TableError` for columns of a new table that could not be read from Avro files."""
    unreadable = sorted(RowColumns.of(schema).many)
    if unreadable and any("avro" in options.get(key, "").lower() for key in _FORMATS):
        raise TableError(
            f"{where}: ROW values inside arrays or maps, as in column '{unreadable[0]}', cannot be "
            "read from Avro files; set 'file.format' to 'parquet'"
        )


def _may_be_null(field: pa.Field, within: bool, inside: bool = False) -> bool:
    """Whether a field is or has a nullable ROW: inside an array or map if `within`, else outside.

    `inside` says whether the field itself is in an array or map.
    """
    if pa.types.is_struct(field.type) and field.nullable and inside == within:
        return True
    collection = pa.types.is_list(field.type) or pa.types.is_map(field.type)
    inside = inside or collection
    return any(_may_be_null(child, within, inside) for child in _children(field.type))


def _children(data_type: pa.DataType) -> list[pa.Field]:
    if pa.types.is_map(data_type):
        return [data_type.key_field, data_type.item_field]
    return [data_type.field(position) for position in range(data_type.num_fields)]
