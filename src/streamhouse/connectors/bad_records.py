"""Bad records that sources leave out: collected, kept in a dead-letter table, and read again.

A row of the table names the query that left the record out, and the number of its batch. A query
commits its batches in order, so its rows up to a committed batch never change. A request to replay
them is the number of that batch, in the table `<table>__replays`.
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from streamhouse.connectors.specs import arrow_schema
from streamhouse.errors import OptionError, RecordError, TableError
from streamhouse.options import DeclaredOptions, of_option
from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.schema.table_name import split_identifier
from streamhouse.source import BAD_RECORDS, Offset, Source
from streamhouse.sql.plan import Column

FAIL, SKIP, TABLE = "fail", "skip", "table"
OPTIONS = DeclaredOptions.of(__package__, "bad_records.toml").options

COLUMNS = (
    Column("source", "STRING"),
    Column("position", "STRING"),
    Column("reason", "STRING"),
    Column("key", "BYTES"),
    Column("value", "BYTES"),
    Column("timestamp", "BIGINT"),
    Column("headers", "MAP<STRING, BYTES>"),
    Column("time", "TIMESTAMP_LTZ(3)"),
    Column("query", "STRING"),
    Column("batch", "BIGINT"),
)
REQUESTS = (Column("query", "STRING"), Column("batch", "BIGINT"))
_READ_INTERVAL_S = 1.0


@dataclass(frozen=True)
class BadRecordOptions:
    """What happens to bad records; `table` is set if they are written into a table."""

    mode: str = of_option("bad-records", FAIL)
    table: str | None = of_option("bad-records.table", None)

    def check_changes(self, where: str) -> None:
        """Raise `OptionError` if bad records of a changelog would be left out."""
        if self.mode != FAIL:
            raise OptionError(
                f"{where}: 'bad-records' = '{self.mode}' would leave out changes of rows, so the "
                f"rows would be wrong from then on; leave it at '{FAIL}'"
            )


class BadRecordCollector:
    """Collects bad records, or raises `RecordError` for the first if the query is to fail."""

    def __init__(self, options: BadRecordOptions) -> None:
        self._options = options
        self._found: list[Mapping[str, Any]] = []

    def add(
        self,
        position: str,
        reason: str,
        value: bytes | None,
        key: bytes | None = None,
        timestamp: int | None = None,
        headers: Iterable[tuple[str, Any]] = (),
    ) -> None:
        """Leave a record out; `position` and `timestamp` (epoch ms) are of the record."""
        if self._options.mode == FAIL:
            raise RecordError(
                f"{position}: {reason}; correct the table, or set its option 'bad-records' to "
                "leave such records out"
            )
        self._found.append(
            {
                "position": position,
                "reason": reason,
                "key": key,
                "value": value,
                "timestamp": timestamp,
                "headers": list(headers),
            }
        )

    def take(self) -> pa.Table:
        """The records since the last call: rows of `BAD_RECORDS`."""
        found, self._found = self._found, []
        return pa.Table.from_pylist(found, BAD_RECORDS)


def create_tables(address: TableAddress) -> None:
    """Create both tables if they do not exist, in a database that may not exist either."""
    warehouse = Warehouse(address.warehouse)
    for table, columns in ((address, COLUMNS), (requests_of(address), REQUESTS)):
        warehouse.create_database(split_identifier(table.identifier)[0], if_not_exists=True)
        table.create(columns, (), {"bucket": "-1"})
    found = set(address.open().arrow_schema.names)
    missing = [column.name for column in COLUMNS if column.name not in found]
    if missing:
        raise TableError(
            f"table {address.identifier} is not a dead-letter table (it has no column "
            f"'{missing[0]}'); name another one as 'bad-records.table'"
        )


def requests_of(address: TableAddress) -> TableAddress:
    """The table of requests to replay."""
    return address.auxiliary_table("replays")


def rows_of(bad_records: pa.Table, source: str, now_ms: int, query: str, batch: int) -> pa.Table:
    """Rows of the table for `BAD_RECORDS`; `now_ms`: the time of the batch."""
    count = bad_records.num_rows
    timestamp = pa.scalar(now_ms, pa.int64()).cast(pa.timestamp("ms", "UTC"))
    fixed = {"source": source, "time": timestamp, "query": query, "batch": pa.scalar(batch)}
    columns = {
        column.name: pa.repeat(fixed[column.name], count)
        if column.name in fixed
        else bad_records.column(column.name)
        for column in COLUMNS
    }
    return pa.table(columns).cast(arrow_schema(COLUMNS))


def _read(address: TableAddress) -> pa.Table | None:
    """All rows of a table; None if it does not exist or is empty."""
    table = address.find()
    if table is None or table.latest_snapshot_id() is None:
        return None
    return table.rows()


def waiting(address: TableAddress, prefix: str = "") -> dict[str, tuple[int, int]]:
    """By query: the last batch with bad records, and how many no request covers yet.

    `prefix`: how the names of the columns of the query and its batch begin.
    """
    kept = _read(address)
    if kept is None:
        return {}
    requests = _read(requests_of(address))
    found: dict[str, tuple[int, int]] = {}
    queries = kept.column(f"{prefix}query")
    for query in pc.unique(queries).to_pylist():
        batches = kept.filter(pc.equal(queries, query)).column(f"{prefix}batch")
        before = _requested(requests, query)
        rows = pc.sum(pc.greater(batches, before)).as_py()
        if rows:
            found[query] = (pc.max(batches).as_py(), rows)
    return found


def _requested(requests: pa.Table | None, query: str) -> int:
    if requests is None:
        return -1
    own = requests.filter(pc.equal(requests.column("query"), query)).column("batch")
    return int(pc.max(own).as_py()) if len(own) else -1


@dataclass(frozen=True)
class Replay:
    """The bad records of the batches after `after` up to `upto`, which are read again."""

    after: int
    upto: int


class DeadLetterReplays:
    """The bad records, or late rows, of one query, which it can read again."""

    def __init__(self, address: TableAddress, query: str) -> None:
        self._address, self._query = address, query
        self._read_at = float("-inf")
        self._last = -1

    def requested(self) -> int:
        """The last batch whose records are to be read again; -1 if there is no request.

        Reads the table of requests at most once a second.
        """
        if time.monotonic() - self._read_at >= _READ_INTERVAL_S:
            self._read_at = time.monotonic()
            self._last = _requested(_read(requests_of(self._address)), self._query)
        return self._last

    def rows(self, replay: Replay) -> list[Mapping[str, Any]]:
        """The records of a replay, in the order of their batches and places."""
        kept = _read(self._address)
        if kept is None:
            return []
        batch = kept.column("batch")
        chosen = pc.and_(
            pc.equal(kept.column("query"), self._query),
            pc.and_(pc.greater(batch, replay.after), pc.less_equal(batch, replay.upto)),
        )
        rows: list[Mapping[str, Any]] = kept.filter(chosen).to_pylist()
        return sorted(rows, key=lambda row: (row["batch"], str(row["position"])))


class SkippingSource(Source):
    """A source that can leave out records that it cannot decode, and read them again.

    A subclass has the methods of its own offsets and partitions: `next_offset`, `ranges` and
    `read_range`, and `read_again`. Here its offsets get the key `replayed`: the batch up to which
    bad records have been read again (absent: none). A request to do so is a partition, too.
    """

    _bad_records: BadRecordCollector
    _replays: DeadLetterReplays | None = None

    def next_offset(self, start: Offset, max_rows: int | None) -> Offset:
        """As `latest_offset`."""
        raise NotImplementedError

    def ranges(self, start: Offset, end: Offset, parallelism: int) -> Sequence[Any]:
        """As `partitions`, for different offsets."""
        raise NotImplementedError

    def read_range(self, partition: Any) -> Iterator[pa.RecordBatch]:
        """As `read`."""
        raise NotImplementedError

    def read_again(self, records: Sequence[Mapping[str, Any]]) -> Iterator[pa.RecordBatch]:
        """The rows of records of the dead-letter table."""
        raise NotImplementedError

    def latest_offset(self, start: Offset, max_rows: int | None = None) -> Offset:
        done, before = _replayed(start), _own(start)
        end, replayed = self.next_offset(before, max_rows), max(done, self.requested())
        if end == before and replayed == done:
            return start
        return end if replayed < 0 else {**end, _REPLAYED: replayed}

    def partitions(self, start: Offset, end: Offset, parallelism: int = 1) -> Sequence[Any]:
        first, last = _own(start), _own(end)
        found = [] if first == last else self.ranges(first, last, parallelism)
        after, upto = _replayed(start), _replayed(end)
        return [*found, Replay(after, upto)] if upto > after else found

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, Replay):
            return self.read_range(partition)
        assert self._replays is not None
        return self.read_again(self._replays.rows(partition))

    def bad_records(self) -> pa.Table:
        return self._bad_records.take()

    def replay_from(self, replays: DeadLetterReplays) -> None:
        """Read bad records again when that is requested."""
        self._replays = replays

    def requested(self) -> int:
        """The batch up to which bad records are to be read again; -1 if there is no request."""
        return -1 if self._replays is None else self._replays.requested()

    def has_replays(self, offset: Offset) -> bool:
        """Whether bad records are to be read again after an offset."""
        return self.requested() > _replayed(offset)


_REPLAYED = "replayed"


def _replayed(offset: Offset) -> int:
    return int(offset.get(_REPLAYED, -1))


def _own(offset: Offset) -> Offset:
    """The source's own part of an offset."""
    return {key: value for key, value in offset.items() if key != _REPLAYED}
