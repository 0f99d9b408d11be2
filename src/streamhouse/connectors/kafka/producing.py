"""Produces rows: their records, the partitions, one call per record, retries of an outage."""

import random
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import cycle, repeat
from operator import length_hint
from typing import Any, Self, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import KafkaError, KafkaException, Producer

from streamhouse.arrow_batches import last_of_each_key
from streamhouse.background import in_background
from streamhouse.connectors.kafka.client import TIMEOUT_S, cause_of, is_outage
from streamhouse.connectors.kafka.options import KafkaOptions
from streamhouse.connectors.kafka.records import WRITABLE, RecordLayout
from streamhouse.errors import OptionError, StreamhouseError
from streamhouse.source import ROW_KIND, with_kinds

KEY, VALUE, TIMESTAMP, HEADERS = "key", "value", "timestamp", "headers"
_HEADERS = pa.map_(pa.string(), pa.binary())
_ROWS_AT_ONCE = 20_000
"""So many rows are encoded in memory that the next ones use again; new memory costs more time."""


ANY = -1
"""Leaves the choice to librdkafka: by the hash of the key."""
_VALID_S = 300.0
"""After this time the partitions are looked up again, as often as librdkafka does."""


class Encoding:
    """Encodes the rows of a task.

    With `upserts`, only the last change of each key is written: its row, or no value if the row is
    gone.
    """

    def __init__(self, options: KafkaOptions, layout: RecordLayout, upserts: bool = False) -> None:
        self._layout, self.upserts = layout, upserts
        self._inserts_only = not (upserts or options.value.changelog)
        self._value = options.value.encoder(layout.value)
        self._key = None if options.key is None else options.key.encoder(layout.key)
        for column in layout.columns:
            if column.metadata is not None and column.metadata not in WRITABLE:
                raise OptionError(
                    f"METADATA column '{column.name}' cannot be written; declare it VIRTUAL"
                )

    def records(self, batches: Sequence[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Record batches with the columns `key`, `value`, `timestamp` and `headers`, if any."""
        rows: Iterable[pa.RecordBatch] = batches
        if self.upserts and batches:
            rows = last_of_keys(batches, self._layout.key_columns)
        for batch in rows:
            if self._inserts_only:
                _check_inserts(batch)
            for first in range(0, batch.num_rows, _ROWS_AT_ONCE):
                yield self._encoded(batch.slice(first, _ROWS_AT_ONCE))

    def _encoded(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        columns = {}
        layout = self._layout
        if self._key is not None:
            keys = [rows.column(name) for name in layout.key_columns]
            batch = pa.RecordBatch.from_arrays(keys, schema=layout.key)
            columns[KEY] = self._key.encode(batch)
        names = [*layout.value.names, *([ROW_KIND] if ROW_KIND in rows.schema.names else [])]
        values = self._value.encode(rows.select(names))
        if self.upserts:
            gone = pc.is_in(rows.column(ROW_KIND), pa.array(["-D", "-U"]))
            values = pc.if_else(gone, pa.scalar(None, pa.binary()), values)
        columns[VALUE] = values
        for column in layout.columns:
            if column.metadata == TIMESTAMP:
                timestamps = rows.column(column.name).cast(pa.timestamp("ms", "UTC"), safe=False)
                columns[TIMESTAMP] = timestamps.cast(pa.int64())
            elif column.metadata == HEADERS:
                columns[HEADERS] = rows.column(column.name).cast(_HEADERS)
        return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def _check_inserts(rows: pa.RecordBatch) -> None:
    if ROW_KIND in rows.schema.names and not pc.all(pc.equal(rows.column(ROW_KIND), "+I")).as_py():
        raise StreamhouseError(
            "the query updates or deletes rows, which this format cannot express; write with "
            "'connector' = 'upsert-kafka', or with the format debezium-json or canal-json"
        )


def last_of_keys(
    batches: Sequence[pa.RecordBatch], keys: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """The last row of each key, in the order of these rows, with a row kind."""
    table = with_kinds(pa.Table.from_batches(batches))
    yield from last_of_each_key(table, keys).combine_chunks().to_batches()


class SinkPartitions:
    """The partitions of a topic as they are now; driver only."""

    def __init__(self, count: int, writable: Sequence[int]) -> None:
        """`writable`: the numbers of those that have a leader."""
        self._count = count
        turns = random.sample(writable, len(writable)) or [ANY]
        self._turns = cycle(turns)
        self._until = time.monotonic() + _VALID_S

    @classmethod
    def of(cls, producer: Producer, topic: str, timeout_s: float | None = None) -> Self:
        """Look the partitions up; raises `KafkaException`."""
        metadata = producer.list_topics(topic, timeout_s or TIMEOUT_S).topics[topic]
        if metadata.error is not None:
            raise KafkaException(metadata.error)
        found = metadata.partitions
        return cls(
            len(found), [number for number, partition in found.items() if partition.leader >= 0]
        )

    @property
    def outdated(self) -> bool:
        """Whether they should be looked up again."""
        return time.monotonic() >= self._until

    def of_rows(
        self, batch: pa.RecordBatch, partitioner: str, task: int, first: int
    ) -> Iterable[int]:
        """The partition of each record of a batch, whose first one is number `first` of all.

        Without keys, all records of a call go to one partition, and those of the next call to
        another.
        """
        rows = batch.num_rows
        if partitioner == "fixed":
            return repeat(task % self._count, rows)
        if partitioner == "round-robin":
            return (row % self._count for row in range(first, first + rows))
        if KEY in batch.schema.names:
            return repeat(ANY, rows)
        # librdkafka takes longer to choose one for each record.
        return repeat(next(self._turns), rows)


Result = TypeVar("Result")

_PASSING = (
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._MSG_TIMED_OUT,
    KafkaError.BROKER_NOT_AVAILABLE,
    KafkaError.CONCURRENT_TRANSACTIONS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError.NOT_ENOUGH_REPLICAS,
    KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    KafkaError.REQUEST_TIMED_OUT,
)


def recoverable(error: KafkaException) -> bool:
    """Whether the same work may succeed later, with a new client."""
    cause = cause_of(error)
    if cause is None or cause.fatal():
        return False
    return cause.retriable() or is_outage(error) or cause.code() in _PASSING


def in_time(call: Callable[[], Result], seconds: float, what: str) -> Result:
    """The result of a call of a client that may not return; `KafkaException` when its time is over.

    The call is left to a thread, which keeps its client until it returns or the process ends.
    """
    try:
        return in_background(call, f"kafka: {what}").result(seconds)
    except TimeoutError:
        text = f"{what} was not answered within {seconds:.0f} s"
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, text)) from None


def produce_rows(
    produce: Callable[..., None],
    topic: str,
    rows: pa.RecordBatch,
    partitions: Sequence[int],
    delivered: Callable[..., None],
    make_room: Callable[[], None],
) -> None:
    """Produce each row once, in their order, each to its partition.

    `rows` has the columns of `Encoding.records`. `make_room` is called while the queue of the
    producer is full.
    """
    values, keys, extras = _column(VALUE, rows), _column(KEY, rows), _extras(rows)
    done = 0
    while done < rows.num_rows:
        left = iter(values[done:])
        arguments = [repeat(topic), left, keys[done:], partitions[done:], repeat(delivered)]
        try:
            if extras is None:
                # `map` runs no bytecode between two records.
                deque(map(produce, *arguments), maxlen=0)
            else:
                for *positional, extra in zip(*arguments, extras[done:], strict=False):
                    produce(*positional, **extra)
            return
        except BufferError:
            # The record that was refused is not among those left.
            done = rows.num_rows - length_hint(left) - 1
            make_room()


def _column(name: str, rows: pa.RecordBatch) -> Sequence[bytes | None]:
    """The values of a column; None for each row if the records have no such part."""
    if name not in rows.schema.names:
        return [None] * rows.num_rows
    # Five times as fast as `to_pylist`, which makes an Arrow scalar for each value.
    values: list[bytes | None] = rows.column(name).to_numpy(zero_copy_only=False).tolist()
    return values


def _extras(rows: pa.RecordBatch) -> list[dict[str, Any]] | None:
    """The timestamp and the headers of each record, where set; None without columns for them."""
    names = [name for name in (TIMESTAMP, HEADERS) if name in rows.schema.names]
    if not names:
        return None
    columns = zip(*(rows.column(name).to_pylist() for name in names), strict=True)
    return [
        {name: value for name, value in zip(names, row, strict=True) if value is not None}
        for row in columns
    ]
