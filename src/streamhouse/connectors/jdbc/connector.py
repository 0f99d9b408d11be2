"""The `jdbc` connector; the driver writes each micro-batch in one transaction, once."""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from itertools import chain

import pyarrow as pa

from streamhouse.arrow_batches import gathered
from streamhouse.connectors.base import (
    BatchLog,
    CollectingWriter,
    Connector,
    Delivery,
    Scan,
    Sink,
    SinkCommitter,
    WrittenBatch,
    collected_rows,
)
from streamhouse.connectors.jdbc.options import (
    DECLARED,
    OPTIONS,
    ScanOptions,
    WriteOptions,
    parse,
)
from streamhouse.connectors.jdbc.reader import JdbcReader
from streamhouse.connectors.jdbc.statements import Statements, net_changes
from streamhouse.connectors.jdbc.target import (
    CommitsTable,
    Connection,
    Transactions,
    execute,
    load_target,
)
from streamhouse.connectors.specs import SinkSpec
from streamhouse.errors import ConnectError, TableError
from streamhouse.mysql.connection import run
from streamhouse.mysql.options import MySqlOptions
from streamhouse.options import OptionValues
from streamhouse.sql.plan import Capabilities, TableInfo
from streamhouse.state.segment import spilled

_LOG = logging.getLogger("streamhouse.query")
_CHUNK_ROWS = 262_144


def insert(
    spec: SinkSpec,
    server: MySqlOptions,
    options: WriteOptions,
    query_id: str,
    rows: Iterator[pa.RecordBatch],
) -> None:
    """Write all rows in one transaction; until it is done, they are in a temporary file."""
    first = next(rows, None)
    batches = [] if first is None else spilled(first.schema, chain([first], rows)).to_batches()
    if spec.primary_key and options.guarantee is None:
        # A transaction that is tried again writes the same rows by key.
        options = replace(options, guarantee="at-least-once")
    with closing(JdbcCommitter(spec, server, options, query_id)) as committer:
        committer.write(0, batches)
        committer.forget()


class JdbcCommitter(SinkCommitter):
    """Writes each batch in a transaction that also records its number (`CommitsTable`).

    Rows are updated and deleted by the declared primary key, if any.

    If the user may not write that table, or the target's engine has no transactions, a batch that
    runs again writes its rows again: by key, that changes nothing; without a key, it doubles them.
    """

    def __init__(
        self, spec: SinkSpec, server: MySqlOptions, options: WriteOptions, query_id: str
    ) -> None:
        self._server = server
        self._target = load_target(server, spec.columns, spec.primary_key)
        self._statements = Statements(self._target, options.statement_rows or None)
        self._transactions = Transactions(server, options.retries)
        self._commits: CommitsTable | None = None
        if options.guarantee != "at-least-once":
            try:
                self._commits = self._prepared(options, query_id)
            except BaseException:
                self.close()
                raise

    def put(self, written: WrittenBatch) -> bool:
        return self.write(written.number, list(collected_rows(written.messages)))

    def check_log(self, log: BatchLog) -> None:
        if self._commits is not None:
            last = self._transactions.run(self._commits.last)
            log.check(last, f"MySQL table {self._target.name}")

    def write(self, number: int, rows: Iterable[pa.RecordBatch]) -> bool:
        """Write a batch, whose rows can be iterated again; False if it was committed before."""

        def work(connection: Connection) -> bool:
            if self._commits is not None:
                if self._commits.last(connection) >= number:
                    return False
                self._commits.record(connection, number)
            for chunk in _chunks(rows):
                self._write(connection, chunk)
            return True

        return self._transactions.run(work)

    def forget(self) -> None:
        """Remove the query's row of the commits table: no batch will run again."""
        if self._commits is not None:
            self._transactions.run(self._commits.forget)

    def close(self) -> None:
        self._transactions.close()

    def _write(self, connection: Connection, rows: pa.Table) -> None:
        if self._target.key:
            rows, deleted = net_changes(rows, self._target.key)
            for text in self._statements.deletes(deleted):
                execute(connection, text)
        for text in self._statements.inserts(rows):
            execute(connection, text)
        if self._target.key and self._target.other_keys:
            self._check_upserts(connection, rows.select(list(self._target.key)))

    def _check_upserts(self, connection: Connection, keys: pa.Table) -> None:
        """Raise `TableError` if rows were written over rows of other keys.

        ON DUPLICATE KEY UPDATE updates a row that is equal in any unique index.
        """
        found = sum(int(run(connection, text)[0][0]) for text in self._statements.count(keys))
        if found != keys.num_rows:
            raise TableError(
                f"MySQL table {self._target.name}: {keys.num_rows - found} of {keys.num_rows} rows "
                "have the same value as rows of other keys in a unique index "
                f"({', '.join(self._target.other_keys)}), or keys that the collation takes for "
                "equal; nothing of this batch was written"
            )

    def _prepared(self, options: WriteOptions, query_id: str) -> CommitsTable | None:
        """The commits table; None, with a warning, if the server does not allow it."""
        server, target = self._server, self._target
        commits = CommitsTable(server.database, options.commits_table, query_id, target.name)
        if target.transactional:
            refused = self._transactions.run(commits.prepare)
            if refused is None:
                return commits
            remedy = (
                f"GRANT CREATE, SELECT, INSERT, UPDATE, DELETE ON {commits.name} TO "
                f"'{server.username}'"
            )
            reason = f"user '{server.username}' may not write {commits.name} ({refused})"
        else:
            reason = f"its storage engine {target.engine} has no transactions"
            remedy = f"ALTER TABLE {target.name} ENGINE = InnoDB"
        if options.guarantee is not None:
            raise ConnectError(
                f"MySQL table {target.name} cannot be written exactly once: {reason}; run "
                f"{remedy}, or set 'sink.delivery-guarantee' to 'at-least-once'"
            )
        effect = "rows are written at least once: those of an interrupted batch may be there twice"
        if target.key:
            effect = "a batch that is interrupted runs again and writes the same rows by key"
        _LOG.warning("MySQL table %s: %s; %s. To change this, run %s", target.name, reason,
                     effect, remedy)  # fmt: skip
        return None


def _chunks(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    for group in gathered(batches, _CHUNK_ROWS):
        if any(batch.num_rows for batch in group):
            yield pa.Table.from_batches(group)


class _Jdbc(Connector, declared=DECLARED):
    name = "jdbc"
    options = OPTIONS
    capabilities = Capabilities(stream=False, server=True, merges=False)
    # A batch's rows pass through the driver, which writes them in one transaction.
    batch_rows = 250_000

    def check(self, table: TableInfo, options: Mapping[str, str], where: str) -> None:
        parse(options)

    def delivery(self, table: TableInfo, options: Mapping[str, str]) -> Delivery:
        write = OptionValues(OPTIONS, options).record(WriteOptions)
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

    def sink(self, spec: SinkSpec) -> Sink:
        server = parse(spec.options).server
        privileges = f"SELECT, INSERT, UPDATE, DELETE ON {server.name}"
        server = replace(server, privileges=privileges)
        given = (spec, server, OptionValues(OPTIONS, spec.options).record(WriteOptions))
        return Sink(
            lambda *_: CollectingWriter(), partial(JdbcCommitter, *given), partial(insert, *given)
        )

    def scan(self, table: TableInfo, options: Mapping[str, str], columns: Sequence[str]) -> Scan:
        selected = [column for column in table.columns if column.name in columns]
        reader, values = JdbcReader(parse(options).server, selected), OptionValues(OPTIONS, options)
        try:
            splits = "scan.partition.column" in values
            ranges = reader.ranges(values.record(ScanOptions)) if splits else ["TRUE"]
        finally:
            reader.close()
        return reader.schema, lambda: reader.all_rows(ranges)


CONNECTOR = _Jdbc()
