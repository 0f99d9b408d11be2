"""A file of a table, as a listing of its folder shows it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from streamhouse.connectors.base import Metadata
from streamhouse.connectors.filesystem.options import HIDDEN
from streamhouse.sql.plan import Column
from streamhouse.types import arrow_type


@dataclass(frozen=True, order=True)
class DataFile:
    """A file as it was listed.

    `name`: its path below the folder (`day=1/a.json`; empty: the path is a file); `size` in bytes;
    `modified_ms`: when it was written (epoch ms), None in offsets of earlier versions.
    """

    name: str
    size: int
    modified_ms: int | None = None


def is_hidden(name: str) -> bool:
    """Whether readers skip a file or folder of this name, as Hive and Spark do."""
    return name.startswith(HIDDEN)


def is_hidden_folder(name: str) -> bool:
    """The same of a folder; that of a partition (`_day=1`) is read."""
    return is_hidden(name) and "=" not in name


_PATH, _NAME, _SIZE, _MODIFIED = "file.path", "file.name", "file.size", "file.modification-time"
METADATA = (
    Metadata(_PATH, "STRING", "the whole path of the row's file"),
    Metadata(_NAME, "STRING", "the name of the file, without its folders"),
    Metadata(_SIZE, "BIGINT", "its bytes"),
    Metadata(_MODIFIED, "TIMESTAMP_LTZ(3)", "when it was written"),
)


def metadata_values(columns: Sequence[Column], path: str, file: DataFile) -> dict[str, pa.Scalar]:
    """The values of the METADATA columns for all rows of a file, by the columns' names."""
    found = {
        _PATH: pa.scalar(path),
        _NAME: pa.scalar(path.rpartition("/")[2]),
        _SIZE: pa.scalar(file.size, pa.int64()),
        _MODIFIED: pa.scalar(file.modified_ms, pa.int64()).cast(pa.timestamp("ms", "UTC")),
    }
    return {
        column.name: found[column.metadata].cast(arrow_type(column.type))
        for column in columns
        if column.metadata is not None
    }
