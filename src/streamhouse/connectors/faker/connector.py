"""The `faker` connector."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from streamhouse.connectors.datagen.generated_source import (
    GeneratedConnector,
    GeneratedSource,
    column_source,
)
from streamhouse.connectors.datagen.random_streams import RowNumbers
from streamhouse.connectors.faker.options import OPTIONS, values_of
from streamhouse.errors import OptionError
from streamhouse.sql.plan import Column, TableInfo

_TRIED = 50
"""How many rows are generated to check a declaration."""


class _Faker(GeneratedConnector):
    name = "faker"
    summary = (
        "Generates rows of names, addresses, numbers, times and texts by expressions, as "
        "flink-faker; a replayed micro-batch has the same rows."
    )
    options = OPTIONS
    scan_note = "all rows; needs `number-of-rows`"

    def check(self, table: TableInfo, options: Mapping[str, str], where: str) -> None:
        super().check(table, options, where)
        numbers = np.arange(_TRIED, dtype=np.int64)
        sample = RowNumbers(numbers, numbers * 1000, options.get("seed", ""), True)
        try:
            for column in values_of(table.columns, options):
                column.values(sample)
        except OptionError as error:
            raise OptionError(f"{where}: {error}") from None

    def generated(
        self,
        columns: Sequence[Column],
        options: Mapping[str, str],
        names: Sequence[str] | None = None,
    ) -> GeneratedSource:
        return column_source(columns, values_of(columns, options), options)


CONNECTOR = _Faker()
