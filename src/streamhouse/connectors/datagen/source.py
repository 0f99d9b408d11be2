"""The `datagen` source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from streamhouse.connectors.datagen.columns import FieldValues, columns_of
from streamhouse.connectors.datagen.disorder import Disorder
from streamhouse.connectors.datagen.field import total_rows
from streamhouse.connectors.datagen.generated_source import GeneratedSource
from streamhouse.connectors.datagen.row_numbers import RowNumbers
from streamhouse.errors import OptionError
from streamhouse.options import integer
from streamhouse.sql.plan import Column


class DatagenSource(GeneratedSource):
    """Generates rows at a steady rate.

    Options are Flink's: `rows-per-second` (10000), `number-of-rows` (unbounded), and
    `fields.<name>.*`, see `connectors.datagen.field_options`; and those of `Disorder`. A
    `TIMESTAMP` column has the time when its row is due, less up to `max-past`.
    """

    def __init__(self, columns: Sequence[Column], options: Mapping[str, str]) -> None:
        rate = integer("rows-per-second", options.get("rows-per-second", "10000"), 1)
        disorder = Disorder.parse(options)
        made = columns_of(columns, options, disorder.seed)
        fields = [values.field for values in made if isinstance(values, FieldValues)]
        limit = options.get("number-of-rows")
        total = total_rows(fields, None if limit is None else integer("number-of-rows", limit, 0))
        if not columns:
            raise OptionError("datagen: the table has no physical column; declare one")
        super().__init__(
            pa.schema([(c.name, values.type) for c, values in zip(columns, made, strict=True)]),
            lambda numbers, due_ms: [
                values.values(RowNumbers(numbers, due_ms, disorder.seed)) for values in made
            ],
            rate,
            total,
            disorder,
        )
