"""Data files of a table: their paths, and their statistics.

The minimum and maximum values of a file are two rows in Paimon's `BinaryRow` layout, stored in the
file's metadata.
"""

import struct
from collections import Counter
from collections.abc import Iterator, Sequence

import pyarrow as pa

from streamhouse.paimon.storage.files import Files
from streamhouse.paimon.storage.split_files import SplitFile, variable

_WORDS = {pa.int8(): "<b", pa.int16(): "<h", pa.int32(): "<i", pa.int64(): "<q"}
_COMPACT_DIGITS = 18
"""DECIMAL values of more digits are stored behind the fixed-size words, not in their word."""
UNKNOWN = 1 << 200
"""The magnitude of values without statistics: more than any type holds, also in a sum."""


def data_files(files: Files, folder: str) -> Iterator[tuple[str, str]]:
    """Yield (folder, name) of every file in the bucket folders below a folder of a table."""
    for name, is_folder in files.names(folder):
        if not is_folder:
            if "/bucket-" in folder:
                yield folder, name
        elif name.startswith("bucket-") or "=" in name:
            yield from data_files(files, f"{folder}/{name}")


def magnitudes(file: SplitFile, schema: pa.Schema, columns: Sequence[str]) -> Counter[str]:
    """The greatest absolute value of each of `columns` in a file, DECIMAL as the unscaled number.

    `schema` has the columns of the schema version that the file was written with. The value is
    `UNKNOWN` if the file has no statistics of the column. It is 0 if all values are null, or if the
    column was added after the file was written.
    """
    stats, stats_columns = file.value_stats, file.value_stats_columns
    names = schema.names if stats_columns is None else _texts(stats_columns)
    min_values, max_values, nulls = (variable(stats, 8 * index) for index in (1, 2, 3))
    result = Counter[str]()
    for name in columns:
        if schema.get_field_index(name) < 0:
            result[name] = 0
        elif name not in names:
            result[name] = UNKNOWN
        else:
            index, data_type = names.index(name), schema.field(name).type
            low, high = _value(min_values, index, data_type), _value(max_values, index, data_type)
            if low is None or high is None:
                result[name] = 0 if _long(nulls, index) == file.rows else UNKNOWN
            else:
                result[name] = max(abs(low), abs(high))
    return result


def _value(row: bytes, index: int, data_type: pa.DataType) -> int | None:
    """The number in field `index` of a serialised row; None for a null.

    The row is its arity, a header with a bit for each null, then an 8-byte word for each field.
    """
    arity, row = int.from_bytes(row[:4], "big"), row[4:]
    # The first byte of the header is the row kind.
    if row[1 + index // 8] >> index % 8 & 1:
        return None
    at = (arity + 8 + 63) // 64 * 8 + 8 * index
    if not pa.types.is_decimal(data_type):
        return int(struct.unpack_from(_WORDS[data_type], row, at)[0])
    if data_type.precision <= _COMPACT_DIGITS:
        return int(struct.unpack_from("<q", row, at)[0])
    return int.from_bytes(variable(row, at), "big", signed=True)


def _elements_at(array: bytes) -> tuple[int, int]:
    """The number of elements of a BinaryArray, and the offset of the first."""
    (count,) = struct.unpack_from("<i", array)
    return count, 4 + (count + 31) // 32 * 4


def _long(array: bytes, index: int) -> int | None:
    """An element of a BinaryArray of BIGINT; None for a null, and past the end."""
    count, at = _elements_at(array)
    if index >= count or array[4 + index // 8] >> index % 8 & 1:
        return None
    return int(struct.unpack_from("<q", array, at + 8 * index)[0])


def _texts(array: bytes) -> list[str]:
    count, at = _elements_at(array)
    return [variable(array, at + 8 * index).decode() for index in range(count)]
