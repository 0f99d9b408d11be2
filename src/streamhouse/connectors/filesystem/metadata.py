"""METADATA columns of `filesystem` tables, with Flink's keys."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from streamhouse.connectors.base import Metadata
from streamhouse.connectors.filesystem.data_file import DataFile
from streamhouse.sql.plan import Column
from streamhouse.types import arrow_type

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
