"""What a script under test has in place of servers: tables of given rows, and sinks in memory."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from streamhouse.connectors.base import (
    CollectingWriter,
    Scan,
    Sink,
    SinkCommitter,
    WrittenBatch,
    collected_rows,
)
from streamhouse.connectors.specs import SinkSpec
from streamhouse.errors import TableError
from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.paimon.read.visibility import all_visible_at
from streamhouse.runtime.session.session import Session
from streamhouse.source import ROW_KIND, with_kinds
from streamhouse.sql import syntax
from streamhouse.sql.plan import Name, StreamQuery, TableInfo
from streamhouse.sql.views.statement import CreateMaterializedView
from streamhouse.testing.cases import Row


@dataclass(frozen=True)
class KeptSink(SinkSpec, SinkCommitter):
    """A sink that keeps its rows: as sinks with a key do, the last one of each key."""

    kept: list[Row] = field(default_factory=list, compare=False)

    def open(self) -> Sink:
        return Sink(lambda *_: CollectingWriter(), lambda _: self)

    def put(self, written: WrittenBatch) -> bool:
        rows, key = self.kept, self.primary_key
        for row in (r for b in collected_rows(written.messages) for r in with_kinds(b).to_pylist()):
            kind = row.pop(ROW_KIND)
            if key or kind in ("-U", "-D"):
                found = (n for n, o in enumerate(rows) if all(o[k] == row[k] for k in key or row))
                at = next(found, len(rows))
                del rows[at : at + 1]
            if kind in ("+I", "+U"):
                rows.append(row)
        return True


class TestedSession(Session):
    """Connects to no server: a Paimon table has the given rows of each source."""

    __test__ = False

    def __init__(self, warehouse: Mapping[str, str] | None) -> None:
        super().__init__(warehouse)
        self.sinks: dict[Name, KeptSink] = {}

    def stand_in(self, table: TableInfo) -> TableInfo:
        """The Paimon table with the given rows of another one, created if it is not there."""
        if table.connector == "paimon":
            return table
        if table.changelog and not table.primary_key:
            raise TableError(
                f"table {table.name[-1]} has changes: to test it, give it a PRIMARY KEY"
            )
        *path, name = table.name
        key = table.primary_key if table.changelog or table.capabilities.server else ()
        columns = tuple(replace(column, metadata=None, virtual=False) for column in table.columns)
        options = {"bucket": "1"} if key else {}
        self.tables.keep(TableInfo((*path, f"{name}__given"), columns, (), key, options=options))
        return self.table((*path, f"{name}__given"))

    def over_given(self, query: StreamQuery) -> StreamQuery:
        """A query over the given rows of its source and of the tables that it looks up."""
        lookups = (replace(each, table=self.stand_in(each.table)) for each in query.lookups)
        query = replace(query, lookups=tuple(lookups))
        if query.source.connector == "paimon":
            return query
        scan = replace(query.scan, table=self.stand_in(query.source), options={})
        return replace(query, scan=scan)

    def address(self, info: TableInfo) -> TableAddress:
        address = super().address(info)
        table = address.open()
        if all_visible_at(bool(table.primary_key), table.options) != "commit":
            raise TableError(
                f"table {info.name[-1]} shows rows or changes only after a compaction, and tests "
                "run none; test it with another 'merge-engine', and set its options in CREATE TABLE"
            )
        return address

    def scan(self, table: TableInfo, columns: Sequence[str]) -> Scan:
        given = self.address(self.stand_in(table)).open()
        return given.read_schema(columns), lambda: given.read(columns)

    def sink(self, info: TableInfo, hint: Mapping[str, str]) -> SinkSpec | None:
        if info.connector == "paimon":
            return None
        columns, key = tuple(c for c in info.columns if not c.virtual), info.primary_key
        sink = KeptSink(info.connector, {}, columns, primary_key=key, name=info.name[-1])
        return self.sinks.setdefault(info.name, sink)


def without_compaction(statement: syntax.Statement) -> syntax.Statement:
    """A statement without the options of stores and compactions, on which no rows depend.

    Changes are computed from the snapshots then (decision 018).
    """
    match statement:
        case syntax.CreateCatalog():
            kept = ("type", "default-database", "table-default.")
            options = {k: v for k, v in statement.options.items() if k.startswith(kept)}
        case syntax.CreateTable() | CreateMaterializedView():
            options = dict(statement.options)
        case _:
            return statement
    for name in ("changelog-producer", "deletion-vectors.enabled"):
        options.pop(name, None)
        options.pop(f"table-default.{name}", None)
    return replace(statement, options=options)
