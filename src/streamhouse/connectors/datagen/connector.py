"""The `datagen` connector: generated rows, each of which follows from its number."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from streamhouse.connectors.base import Connector, Scan, scanned
from streamhouse.connectors.datagen.field import FIELD_OPTIONS, Field
from streamhouse.connectors.datagen.nested import ColumnParts, ColumnValues
from streamhouse.connectors.datagen.random_streams import Disorder, RowNumbers
from streamhouse.connectors.specs import SourceSpec, arrow_schema
from streamhouse.errors import OptionError
from streamhouse.options import DeclaredOptions, OptionValues
from streamhouse.source import Lag, Offset, Source, grouped
from streamhouse.sql.plan import Capabilities, Column, TableInfo

_MAX_BATCH = 2_000_000
_MIN_PARTITION = 250_000
_CHUNK = 262_144

Columns: TypeAlias = Callable[[RowNumbers], list[pa.Array]]
"""The columns of rows."""


_DECLARED = DeclaredOptions.of(__package__)
OPTIONS = _DECLARED.options
COMMON_OPTIONS = tuple(option for option in OPTIONS if not option.key.startswith("fields."))
"""The options of all connectors of generated rows."""
_ELEMENTS = "3"
"""The default number of elements of an ARRAY or MAP, as Flink's."""


@dataclass(frozen=True)
class RowRange:
    """A partition of a batch: rows `first` to `last` (exclusive), and the clock of their rate.

    Row `i` is due `(i + 1 - base_rows) / rate` seconds after `base_ms` (epoch milliseconds).
    """

    first: int
    last: int
    base_rows: int
    base_ms: int


class GeneratedSource(Source):
    """A `Source` that generates `rate` rows a second, `total` in all (None: unbounded).

    The clock in the offset sets when each row is due, see `RowRange`, however late it is generated.
    After a restart the clock starts again: no rows are generated for the downtime.
    """

    def __init__(
        self, schema: pa.Schema, columns: Columns, rate: int, total: int | None, disorder: Disorder
    ) -> None:
        self._schema, self._columns = schema, columns
        self._rate, self._total, self._disorder = rate, total, disorder
        self._clock: tuple[int, int] | None = None

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    @property
    def bounded(self) -> bool:
        """Whether the rows end (`number-of-rows` or a sequence)."""
        return self._total is not None

    def _due(self, base_rows: int, base_ms: int) -> int:
        """How many rows are due by a clock."""
        due = base_rows + (time.time_ns() // 1_000_000 - base_ms) * self._rate // 1000
        return due if self._total is None else min(due, self._total)

    def latest_offset(self, start: Offset, max_rows: int | None = None) -> Offset:
        done = int(start.get("rows", 0))
        if self._clock is None:
            self._clock = (done, time.time_ns() // 1_000_000)
        base_rows, base_ms = self._clock
        due = min(self._due(*self._clock), done + min(max_rows or _MAX_BATCH, _MAX_BATCH))
        if due <= done:
            return start
        return {"rows": due, "base_rows": base_rows, "base_ms": base_ms}

    def partitions(self, start: Offset, end: Offset, parallelism: int = 1) -> Sequence[RowRange]:
        rows = range(int(start.get("rows", 0)), int(end.get("rows", 0)))
        if not rows:
            return []
        clock = (int(end["base_rows"]), int(end["base_ms"]))
        groups = grouped(rows, min(parallelism, len(rows) // _MIN_PARTITION))
        return [RowRange(group[0], group[-1] + 1, *clock) for group in groups]

    def generate_sample(self, count: int) -> None:
        """Generate the first rows; raises `OptionError` for values that are not allowed."""
        numbers = np.arange(count, dtype=np.int64)
        self._columns(RowNumbers(numbers, numbers * 1000, self._disorder.seed, sample=True))

    def read(self, partition: RowRange) -> Iterator[pa.RecordBatch]:
        for first in range(partition.first, partition.last, _CHUNK):
            own = np.arange(first, min(first + _CHUNK, partition.last), dtype=np.int64)
            numbers = self._disorder.originals(own, partition.base_rows)
            due_ms = partition.base_ms + (numbers + 1 - partition.base_rows) * 1000 // self._rate
            due_ms = due_ms - self._disorder.delays_ms(numbers)
            rows = RowNumbers(numbers, due_ms, self._disorder.seed)
            yield pa.record_batch(self._columns(rows), schema=self._schema)

    def finished(self, offset: Offset) -> bool:
        return self._total is not None and int(offset.get("rows", 0)) >= self._total

    def lag(self, offset: Offset) -> Lag | None:
        """The rows due but not generated yet, by the clock of `offset`; None before the first."""
        if not offset:
            return None
        due = self._due(int(offset["base_rows"]), int(offset["base_ms"]))
        rows = max(0, due - int(offset["rows"]))
        return Lag(seconds=rows / self._rate, rows=rows)


def column_source(
    columns: Sequence[Column],
    values: Sequence[ColumnValues],
    options: Mapping[str, str],
    sequences: Iterable[int] = (),
) -> GeneratedSource:
    """A source of these columns, by the options that all connectors of generated rows have.

    `sequences`: the numbers of rows after which sequences end. Raises `OptionError`.
    """
    given = OptionValues(OPTIONS, options)
    disorder, number = given.record(Disorder), given["number-of-rows"]
    ends = [*sequences, *([] if number is None else [number])]
    schema = pa.schema([(field.name, field.type) for field in arrow_schema(columns)])
    return GeneratedSource(
        schema,
        lambda rows: [column(rows) for column in values],
        given["rows-per-second"],
        min(ends, default=None),
        disorder,
    )


class GeneratedConnector(Connector):
    """A connector of generated rows: a subclass makes the source of a table."""

    without_effect: Mapping[str, str] = {
        "scan.parallelism": "SET 'parallelism.default' sets the number of tasks"
    }
    capabilities = Capabilities(changelog=False, lookup=False, sink=False, merges=False)
    tried = 0
    """How many rows are generated to check a declaration."""

    def generated(
        self, columns: Sequence[Column], options: Mapping[str, str], names: Sequence[str] | None
    ) -> GeneratedSource:
        """The source of a table, which checks its options; `names`: as those of `source`."""
        raise NotImplementedError

    def check(self, table: TableInfo, options: Mapping[str, str], where: str) -> None:
        super().check(table, options, where)
        try:
            source = self.generated(table.columns, options, None)
            if self.tried:
                source.generate_sample(self.tried)
        except OptionError as error:
            raise OptionError(f"{where}: {error}") from None

    def source(self, spec: SourceSpec, names: Sequence[str] | None) -> GeneratedSource:
        return self.generated(spec.columns, spec.options, names)

    def scan(self, table: TableInfo, options: Mapping[str, str], columns: Sequence[str]) -> Scan:
        source = self.generated(table.columns, options, columns)
        if not source.bounded:
            raise OptionError(
                f"table {table.name[-1]} is unbounded, so a bounded query over it would never end; "
                "set 'number-of-rows', or keep SET 'execution.runtime-mode' = 'streaming'"
            )
        return scanned(source, columns)


class _Datagen(GeneratedConnector, declared=_DECLARED):
    name = "datagen"

    def generated(
        self, columns: Sequence[Column], options: Mapping[str, str], names: Sequence[str] | None
    ) -> GeneratedSource:
        """Options are Flink's, see `connectors.datagen.field`, and those of `Disorder`.

        A `TIMESTAMP` column has the time when its row is due, less up to `max-past`.
        """
        sequences: list[int] = []

        def leaf(path: str, kind: str, whole: bool) -> ColumnValues:
            field = Field(path, kind, options)
            if field.kind == "sequence":
                if not whole:
                    raise OptionError(
                        f"option 'fields.{path}.kind': only a whole column is a sequence"
                    )
                sequences.append(int(field.high or 0) - int(field.low or 0) + 1)
            return field.values

        parts = ColumnParts(options, leaf, tuple(FIELD_OPTIONS), _ELEMENTS, "element")
        return column_source(columns, parts.columns(columns), options, sequences)


CONNECTOR = _Datagen()
