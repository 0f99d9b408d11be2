"""Partitions as folders, in Hive's style: `day=2024-01-01/country=C%C3%B4te`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamhouse.errors import TableError

_ESCAPED = frozenset("\"#%'*/:=?\\{[]^") | {chr(n) for n in (*range(32), 127)}
"""The characters that Hive escapes in names of folders, and the null character."""


def escaped(text: str) -> str:
    """A value as Hive writes it in the name of a folder."""
    return "".join(f"%{ord(char):02X}" if char in _ESCAPED else char for char in text)


def split_rows(
    rows: pa.RecordBatch, columns: Sequence[str], default_name: str
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The rows of each partition, without the partition columns, with its folder; in order."""
    others = [name for name in rows.schema.names if name not in columns]
    if not columns:
        yield "", rows
        return
    folders = _folders(rows, columns, default_name).dictionary_encode()
    codes = folders.indices.to_numpy(zero_copy_only=False)
    order = np.argsort(codes, kind="stable")
    bounds = np.searchsorted(codes[order], np.arange(len(folders.dictionary) + 1))
    values = rows.select(others)
    for number, folder in enumerate(folders.dictionary.to_pylist()):
        mine = order[bounds[number] : bounds[number + 1]]
        yield folder, values.take(pa.array(mine))


def _folders(rows: pa.RecordBatch, columns: Sequence[str], default_name: str) -> pa.Array:
    parts: list[pa.Array | pa.Scalar] = []
    for number, name in enumerate(columns):
        encoded = _texts(name, rows.column(name)).dictionary_encode()
        texts = [escaped(value) or default_name for value in encoded.dictionary.to_pylist()]
        values = pa.array(texts, pa.string()).take(encoded.indices)
        parts += [
            pa.scalar(("/" if number else "") + f"{escaped(name)}="),
            pc.fill_null(values, default_name),
        ]
    return pc.binary_join_element_wise(*parts, pa.scalar(""))


def _texts(name: str, values: pa.Array) -> pa.Array:
    try:
        return values.cast(pa.string())
    except pa.ArrowException as error:
        raise TableError(
            f"filesystem: a value of the partition column '{name}' cannot be the name of a folder "
            f"({error}); write it as text, such as by ENCODE or CAST"
        ) from None


def partition_values(
    folder: str, columns: Sequence[pa.Field], default_name: str
) -> dict[str, pa.Scalar]:
    """The values of partition columns in the path of a folder; `TableError` if one is missing."""
    found: dict[str, str] = {}
    for part in folder.split("/"):
        name, mark, value = part.partition("=")
        if mark:
            found[unquote(name)] = value
    values = {}
    for field in columns:
        if field.name not in found:
            raise TableError(
                f"filesystem: the folder '{folder}' names no value of the partition column "
                f"'{field.name}'; expected a folder such as '{field.name}=…'"
            )
        values[field.name] = _value(field, found[field.name], default_name)
    return values


def _value(field: pa.Field, text: str, default_name: str) -> pa.Scalar:
    if text == default_name:
        if not field.nullable:
            raise TableError(
                f"filesystem: the folder '{field.name}={text}' stands for null, but the partition "
                "column is NOT NULL; rename the folder, or declare the column without NOT NULL"
            )
        return pa.scalar(None, field.type)
    try:
        texts = pa.array([unquote(text)])
        if pa.types.is_time(field.type):
            texts = pc.binary_join_element_wise("1970-01-01", texts, " ").cast(pa.timestamp("us"))
        return texts.cast(field.type)[0]
    except pa.ArrowException:
        raise TableError(
            f"filesystem: the folder '{field.name}={text}' is not a value of the partition "
            f"column, which is {field.type}; rename the folder, or declare the column as STRING"
        ) from None
