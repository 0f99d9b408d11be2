"""Journal of lookups on servers: the table `<target>__looked_up` records what each batch found.

One row per query, batch and lookup, or several for a large result: `_query` (the query's id),
`_batch`, `_lookup` (`dim_0`, `dim_1`, … in the order of the joins), `_piece` (number of the part of
the result, from 0), `_table` (the table's name in the script), `_keys` (how many keys the batch
looked up) and `_rows`: JSON of the found columns, each a list of its values as text. It is
committed before the target, under the batch's number: a batch that runs again, and an audit, read
it instead of the server (docs/decisions/009-rows-of-lookups-are-committed.md). Rows that no
audit needs any more are removed.
"""

import json
import time
from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from streamhouse.duckdb_connection import LastingConnection
from streamhouse.errors import StreamhouseError
from streamhouse.lookup.dimension import ServerRows
from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.paimon.read.table import Table
from streamhouse.runtime.query_spec import QuerySpec
from streamhouse.runtime.state import lineage
from streamhouse.runtime.state.auxiliary_tables import rows_of_query
from streamhouse.runtime.state.batch_logs import KEPT
from streamhouse.source import of_kind
from streamhouse.sql.expressions.binder import quote
from streamhouse.sql.plan import Column, LookupJoin
from streamhouse.sql.resolution.columns import physical
from streamhouse.types import arrow_type

QUERY, BATCH, LOOKUP, PIECE = "_query", "_batch", "_lookup", "_piece"
KEY = (QUERY, BATCH, LOOKUP, PIECE)
COLUMNS = (
    Column(QUERY, "STRING", False),
    Column(BATCH, "BIGINT", False),
    Column(LOOKUP, "STRING", False),
    Column(PIECE, "INT", False),
    Column("_table", "STRING"),
    Column("_keys", "BIGINT"),
    Column("_rows", "STRING"),
)
PIECE_ROWS = 10_000
_WINDOW_BATCHES = 1000


def create_table(address: TableAddress) -> None:
    """Create the `__looked_up` table if it does not exist."""
    address.create(COLUMNS, KEY, {"bucket": "1"})


class LookupJournal:
    """Reads and writes the journal of one query; it stays open between batches."""

    def __init__(self, spec: QuerySpec) -> None:
        assert spec.lookup_journal is not None
        self._address, self._target, self._sink = spec.lookup_journal, spec.target, spec.sink
        self._user = spec.query_id
        self._lookups = {
            lookup.relation: lookup for lookup in spec.query.lookups if lookup.on_server
        }
        self._db = LastingConnection(threads=1)
        self._window: tuple[int, pa.Table] | None = None
        self._expiry_checked_s = time.monotonic()

    def close(self) -> None:
        """Close the embedded DuckDB."""
        self._db.close()

    def recorded(self, batch: int) -> dict[str, pa.Table] | None:
        """The rows that a batch found, by lookup; None if it has not committed them yet."""
        table = self._address.open()
        last = table.snapshots.last_commit_of(self._user)
        if last is None or last.commit_identifier < batch:
            return None
        return self._results(self._read(table, batch, batch + 1), batch)

    def past(self, batch: int) -> dict[str, pa.Table]:
        """The same for an audit; reads the journal in windows, so batches should be in order."""
        window = batch // _WINDOW_BATCHES
        if self._window is None or self._window[0] != window:
            first = window * _WINDOW_BATCHES
            rows = self._read(self._address.open(), first, first + _WINDOW_BATCHES)
            self._window = window, rows
        return self._results(self._window[1], batch)

    def first_kept(self) -> int:
        """The first batch whose rows have not been removed; 0 if there are none."""
        table = self._address.open()
        rows = rows_of_query(table, QUERY, self._user, [QUERY, BATCH])
        first = pc.min(rows.column(BATCH)).as_py()
        return 0 if first is None else int(first)

    def rows(self, batch: int, results: Mapping[str, ServerRows]) -> list[pa.Table]:
        """The rows that a batch writes: what it found and, at times, `-D` rows for old batches."""
        records = [
            {
                QUERY: self._user,
                BATCH: batch,
                LOOKUP: relation,
                PIECE: number,
                "_table": self._lookups[relation].table.name[-1],
                "_keys": result.keys,
                "_rows": self._text(result.rows.slice(first, PIECE_ROWS), self._lookups[relation]),
            }
            for relation, result in results.items()
            # At least one, so that an empty result is recorded too.
            for number, first in enumerate(range(0, max(1, result.rows.num_rows), PIECE_ROWS))
        ]
        table = self._address.open()
        records_table = pa.Table.from_pylist(records, schema=table.arrow_schema)
        added = of_kind(records_table, "+I")
        expired = self._expired(table, batch)
        return [added] if expired is None else [expired, added]

    def _expired(self, table: Table, batch: int) -> pa.Table | None:
        if time.monotonic() - self._expiry_checked_s < lineage.EVERY_S:
            return None
        self._expiry_checked_s = time.monotonic()
        end = batch - KEPT
        if self._sink is None:
            oldest_commit = lineage.dead_before(self._target.open(), self._user)
            if oldest_commit is None:
                return None
            end = min(oldest_commit, end)
        before = {"method": "lessThan", "field": BATCH, "literals": [end]}
        rows = rows_of_query(table, QUERY, self._user, KEY, before)
        rows = rows.filter(pc.less(rows.column(BATCH), end))
        if rows.num_rows < lineage.LEAST:
            return None
        return of_kind(rows, "-D")

    def _read(self, table: Table, first: int, end: int) -> pa.Table:
        rows = rows_of_query(
            table,
            QUERY,
            self._user,
            None,
            {"method": "greaterOrEqual", "field": BATCH, "literals": [first]},
            {"method": "lessThan", "field": BATCH, "literals": [end]},
        )
        return rows.sort_by([(BATCH, "ascending"), (PIECE, "ascending")])

    def _results(self, rows: pa.Table, batch: int) -> dict[str, pa.Table]:
        of_batch, results = rows.filter(pc.equal(rows.column(BATCH), batch)), {}
        for relation, lookup in self._lookups.items():
            pieces = of_batch.filter(pc.equal(of_batch.column(LOOKUP), relation)).column("_rows")
            found = [self._values(lookup, text, batch) for text in pieces.to_pylist()]
            results[relation] = pa.concat_tables([_schema(lookup).empty_table(), *found])
        return results

    def _text(self, rows: pa.Table, lookup: LookupJoin) -> str:
        casts = ", ".join(f"CAST({quote(name)} AS VARCHAR)" for name in lookup.columns)
        texts = self._db.run(f"SELECT {casts} FROM given", given=rows)
        columns = zip(lookup.columns, texts.columns, strict=True)
        return json.dumps({name: c.to_pylist() for name, c in columns}, ensure_ascii=False)

    def _values(self, lookup: LookupJoin, text: str, batch: int) -> pa.Table:
        columns: dict[str, Sequence[str | None]] = json.loads(text)
        if not set(lookup.columns) <= set(columns):
            raise StreamhouseError(
                f"batch {batch} of table {self._target.identifier} was interrupted after it had "
                f"looked up other columns of {lookup.table.name[-1]} than the SELECT now uses; run "
                "the former SELECT until it has caught up, then the new one"
            )
        types = physical(lookup.table)
        casts = ", ".join(f"CAST({quote(name)} AS {types[name]})" for name in lookup.columns)
        texts = pa.table({name: pa.array(v, pa.string()) for name, v in columns.items()})
        schema = _schema(lookup)
        return (
            self._db.run(f"SELECT {casts} FROM given", given=texts)
            .rename_columns(schema.names)
            .cast(schema)
        )


def _schema(lookup: LookupJoin) -> pa.Schema:
    types = {column.name: column.type for column in lookup.table.columns}
    return pa.schema([pa.field(name, arrow_type(types[name])) for name in lookup.columns])
