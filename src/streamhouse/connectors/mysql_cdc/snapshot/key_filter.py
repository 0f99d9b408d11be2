"""Selects the changes of keys that the snapshot has read."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamhouse.connectors.mysql_cdc.binlog.captured_table import CapturedTable
from streamhouse.mysql.connection import Session
from streamhouse.mysql.keys import KeySpace
from streamhouse.mysql.position import KeyJson
from streamhouse.mysql.values.types import key_of_value, to_values


class SnapshotFilter:
    """Selects the rows with keys up to `up_to`; a `RowSelection`."""

    def __init__(self, captured: CapturedTable, up_to: KeyJson) -> None:
        self._columns = [(column, captured.date_reading(column)) for column in captured.table.key]
        names = [column.name for column in captured.columns]
        self.key_indexes = [names.index(column.name) for column in captured.table.key]
        self._up_to = up_to
        self._space = KeySpace(captured.table)
        self._session = Session(captured.options)
        self._known: dict[KeyJson, bool] = {}

    def mask(self, columns: Sequence[pa.Array]) -> npt.NDArray[np.bool_]:
        """Which rows the snapshot has read; `columns`: those of the key."""
        values = [
            [key_of_value(column, value, reading) for value in to_values(column, array)]
            for (column, reading), array in zip(self._columns, columns, strict=True)
        ]
        keys: list[KeyJson] = list(zip(*values, strict=True))
        new = [key for key in dict.fromkeys(keys) if key not in self._known]
        within = self._space.within(new, None, self._up_to, self._session)
        self._known |= dict(zip(new, within, strict=True))
        return np.array([self._known[key] for key in keys], np.bool_)

    def close(self) -> None:
        self._session.close()
