"""The `jdbc` connector."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from streamhouse.connectors.base import Connector, Delivery, Scan
from streamhouse.connectors.jdbc.options import DECLARED, OPTIONS, parse, parse_scan, parse_write
from streamhouse.connectors.jdbc.reader import JdbcReader
from streamhouse.connectors.jdbc.sink import JdbcSink
from streamhouse.connectors.specs import SinkSpec
from streamhouse.sql.plan import Capabilities, TableInfo


class _Jdbc(Connector):
    name = "jdbc"
    summary = (
        "A MySQL or MariaDB table: looked up by key, read as a whole, or written by upserts and "
        "deletes."
    )
    options = OPTIONS
    without_effect = DECLARED.without_effect
    capabilities = Capabilities(stream=False, server=True, merges=False)
    guarantee = "exactly-once"
    guarantee_note = (
        "each micro-batch is one transaction, which records its number in `streamhouse_commits`; "
        "if the user may not create that table, at-least-once: with a PRIMARY KEY a batch that "
        "runs again writes the same rows by key, without one it doubles them"
    )
    takes = "with a PRIMARY KEY all changes, else inserts"
    # A batch's rows pass through the driver, which writes them in one transaction.
    batch_rows = 250_000
    scan_note = "the current rows"

    def check(self, table: TableInfo, options: Mapping[str, str], where: str) -> None:
        parse(options)
        parse_scan(options)
        parse_write(options)

    def delivery(self, table: TableInfo, options: Mapping[str, str]) -> Delivery:
        write = parse_write(options)
        key = ", ".join(table.primary_key)
        how = f"upserts and deletes by {key}" if key else "inserts"
        how += ", one transaction for each micro-batch"
        again = f"writes the same rows by {key}" if key else "doubles its rows"
        if write.guarantee == "at-least-once":
            return Delivery("at-least-once", f"{how}; a batch that runs again {again}")
        how += f", which records its number in `{write.commits_table}`"
        if write.guarantee is None:
            how += (
                "; at-least-once if the user may not create that table: then a batch that runs "
                f"again {again}"
            )
        return Delivery("exactly-once", how)

    def refused_changes(self, table: TableInfo) -> str | None:
        if table.primary_key:
            return None
        return (
            "declare the PRIMARY KEY (…) NOT ENFORCED by which they are found, of the columns of a "
            "unique index in MySQL"
        )

    def sink(self, spec: SinkSpec) -> JdbcSink:
        return JdbcSink(spec, parse(spec.options).server, parse_write(spec.options))

    def scan(self, table: TableInfo, options: Mapping[str, str], columns: Sequence[str]) -> Scan:
        selected = [column for column in table.columns if column.name in columns]
        reader, split = JdbcReader(parse(options).server, selected), parse_scan(options)
        try:
            ranges = ["TRUE"] if split is None else reader.ranges(split)
        finally:
            reader.close()
        return reader.schema, lambda: reader.all_rows(ranges)


CONNECTOR = _Jdbc()
