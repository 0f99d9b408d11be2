"""The `faker` connector."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from streamhouse.connectors.base import Connector, Scan
from streamhouse.connectors.datagen.generated_source import GeneratedSource, scan
from streamhouse.connectors.datagen.random_streams import Numbers, RowNumbers
from streamhouse.connectors.faker.options import OPTIONS, check, parse
from streamhouse.connectors.specs import SourceSpec
from streamhouse.errors import OptionError
from streamhouse.sql.plan import Capabilities, Column, TableInfo


class _Faker(Connector):
    name = "faker"
    summary = (
        "Generates rows of names, addresses, numbers, times and texts by expressions, as "
        "flink-faker; a replayed micro-batch has the same rows."
    )
    options = OPTIONS
    without_effect = {"scan.parallelism": "SET 'parallelism.default' sets the number of tasks"}
    capabilities = Capabilities(changelog=False, lookup=False, sink=False, merges=False)
    scan_note = "all rows; needs `number-of-rows`"

    def check(self, table: TableInfo, options: Mapping[str, str], where: str) -> None:
        try:
            check(table.columns, options)
        except OptionError as error:
            raise OptionError(f"{where}: {error}") from None

    def source(self, spec: SourceSpec, names: Sequence[str] | None) -> GeneratedSource:
        return _source(spec.columns, spec.options)

    def scan(self, table: TableInfo, options: Mapping[str, str], columns: Sequence[str]) -> Scan:
        return scan(_source(table.columns, options), table, columns)


def _source(columns: Sequence[Column], options: Mapping[str, str]) -> GeneratedSource:
    parsed = parse(columns, options)

    def generated(numbers: Numbers, due_ms: Numbers) -> list[pa.Array]:
        rows = RowNumbers(numbers, due_ms, parsed.disorder.seed)
        return [column.values(rows) for column in parsed.columns]

    return GeneratedSource(parsed.schema, generated, parsed.rate, parsed.total, parsed.disorder)


CONNECTOR = _Faker()
