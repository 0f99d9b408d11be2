"""A topic as the sink of a query: the driver produces what tasks have encoded, in batches.

With `exactly-once`, each micro-batch is one transaction of the driver's producer. It also commits
the number of the next batch as an offset of a consumer group, so Kafka keeps rows and number
together: a batch that runs again after a crash is recognised and skipped. The transactional id is
the same for all runs of a query: a new run ends the open transaction of a driver that died, and
locks out one that still runs. So does a driver whose brokers have failed: it opens a new producer,
and writes the batch again, unless its number is recorded.
"""

import logging
import time
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import closing, suppress
from functools import partial
from typing import Any

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

from streamhouse.background import in_background
from streamhouse.connectors.base import BatchLog, CollectingWriter, SinkCommitter, WrittenBatch
from streamhouse.connectors.kafka.client import (
    FIRST_CONTACT_S,
    TIMEOUT_S,
    ConnectionErrors,
    cause_of,
    consumer,
    created,
    kafka_error,
    text_of,
)
from streamhouse.connectors.kafka.options import CLIENTS, KafkaOptions
from streamhouse.connectors.kafka.producing import (
    Encoding,
    SinkPartitions,
    in_time,
    produce_rows,
    recoverable,
)
from streamhouse.errors import CommitConflictError, ConnectError, DataLossError, StreamhouseError

log = logging.getLogger("streamhouse.kafka")

_TRANSACTION_MS = "600000"
_FLUSH_S = 120.0
"""After this time without any record taken, the brokers are treated as failed."""
_FLUSH_STEP_S = 5.0
_OUTAGE_S, _LEAST_ATTEMPTS, _PAUSE_S = 60.0, 3, 0.2
_SECOND_CONTACT_S = 2.0
"""The first attempt to open the producer has waited for brokers that are slow."""
_ROWS_AT_ONCE = 10_000
"""The client's reports are handled after so many records; new Python values reuse memory."""


class KafkaSinkWriter(CollectingWriter):
    """Encodes the rows of one task, and sends the records to the driver."""

    def __init__(self, encoding: Encoding) -> None:
        super().__init__()
        self._encoding = encoding

    def write(self, rows: pa.RecordBatch) -> None:
        if self._encoding.upserts:
            super().write(rows)
        else:
            self._batches += self._encoding.records([rows])

    def prepare(self) -> list[pa.Table]:
        if self._encoding.upserts:
            self._batches = list(self._encoding.records(self._batches))
        return super().prepare()


class KafkaSinkCommitter(SinkCommitter):
    """Produces micro-batches; see the module for `exactly-once`.

    With `at-least-once`, a batch that runs again is produced again, unless its number was already
    recorded. With `none`, the committer does not wait for the brokers.
    """

    def __init__(self, options: KafkaOptions, query_id: str) -> None:
        self._options = options
        self._topic = options.topics[0]
        self._exactly_once = options.guarantee == "exactly-once"
        prefix = options.transactions or "streamhouse"
        self._id = f"{prefix}-{query_id}"
        self._producer: Producer | None = None
        self._failed: KafkaError | None = None
        self._causes = ConnectionErrors()
        self._partitions: SinkPartitions | None = None
        self._next_number: int | None = None
        """The recorded number of the next batch, negative without a record; None: not read yet."""
        self._log: BatchLog | None = None
        """The log to compare with the first recorded number; None if that is done."""
        self._group: Any = None
        """The metadata of the group that the number is recorded for."""
        # It takes half a second: meanwhile Spark starts the query.
        self._opening: Future[None] | None = in_background(
            lambda: self._open(FIRST_CONTACT_S), "open the producer"
        )

    def put(self, written: WrittenBatch) -> bool:
        try:
            self._finish_opening()
            if self._exactly_once:
                return self._written_once(written)
            producer = self._opened()
            self._produce(producer, written.messages)
            if self._options.guarantee == "none":
                producer.poll(0)
            else:
                self._flush(producer)
            return True
        except (KafkaException, SystemError) as error:
            cause = self._cause(error)
            self._producer = None
            raise self._readable(cause) from None

    def _readable(self, error: KafkaException) -> StreamhouseError:
        if _fenced(error):
            return CommitConflictError(
                f"another run writes topic {self._topic} with the transactional id {self._id}; "
                "stop it, or give each query its own 'sink.transactional-id-prefix'"
            )
        return kafka_error(self._options, error, self._causes.cause())

    def check_log(self, log: BatchLog) -> None:
        self._log = log

    def _written_once(self, written: WrittenBatch) -> bool:
        """Write a batch, again while the brokers fail; False if they had it from an earlier run."""
        is_begun, attempts, failing_since = False, 0, None
        while True:
            try:
                # This ends a dead driver's transaction, so the recorded number is final.
                producer = self._opened()
                if not self._is_new(written.number):
                    # The brokers may not have answered a commit that they had made.
                    return is_begun
                is_begun = True
                self._in_transaction(producer, written)
                return True
            except (KafkaException, SystemError) as error:
                cause = self._cause(error)
                # The next attempt opens a new producer, which ends the transaction.
                self._producer = None
                if _fenced(cause) or not recoverable(cause):
                    raise cause from None
                attempts += 1
                failing_since = failing_since or time.monotonic()
                self._wait(attempts, time.monotonic() - failing_since, cause, written.number)
            except BaseException:
                self._producer = None
                raise

    def _wait(self, attempts: int, seconds: float, error: KafkaException, number: int) -> None:
        """Wait for the next attempt; raises when the brokers have failed for too long.

        An attempt can last as long as the outage may, so some are made in any case.
        """
        failed = f"Kafka at {self._options.servers}: {text_of(error)}"
        if seconds >= _OUTAGE_S and attempts >= _LEAST_ATTEMPTS:
            raise ConnectError(
                f"{failed}; batch {number} could not be written into topic {self._topic} for "
                f"{seconds:.0f} s: check the brokers, and run the script again once they "
                "answer (it goes on with this batch; nothing is lost or written twice)"
            ) from None
        log.warning("%s; writing batch %d again", failed, number)
        time.sleep(_PAUSE_S)

    def _in_transaction(self, producer: Producer, written: WrittenBatch) -> None:
        producer.begin_transaction()
        self._produce(producer, written.messages)
        self._flush(producer)
        self._record_number(producer, written.number)
        producer.commit_transaction(_FLUSH_S)
        # No other run can have written since: its producer would have ended this one's.
        self._next_number = written.number + 1

    def _record_number(self, producer: Producer, number: int) -> None:
        """Add the number of the next batch to the transaction."""
        group, next_number = self._group, [TopicPartition(self._topic, 0, number + 1)]
        # The client does not keep to its own time (librdkafka's issue 5456).
        in_time(
            lambda: producer.send_offsets_to_transaction(next_number, group, TIMEOUT_S),
            2 * TIMEOUT_S,
            "the number of a batch",
        )

    def _is_new(self, number: int) -> bool:
        """Whether the batch is not in the topic yet, by the recorded number of batches."""
        recorded = self._next_number
        if recorded is None:
            recorded = self._next_number = self._recorded_number()
        log, self._log = self._log, None
        if log is not None:
            log.check(recorded - 1, f"topic {self._topic}")
        if recorded < 0 and number > 0:
            raise DataLossError(
                f"Kafka has no record of what this query has written into topic {self._topic} (the "
                f"offset of group {self._id} is gone, for instance by the brokers' "
                f"'offsets.retention.minutes'), so it is unknown whether batch {number} is in it: "
                f"commit offset {number} for that group and partition 0 if it is not, or "
                f"{number + 1} if it is, or run the script with --from-scratch"
            )
        return recorded <= number

    def _recorded_number(self) -> int:
        """The recorded number of the next batch; negative if there is none."""
        settings = {"group.id": self._id, "isolation.level": "read_committed"}
        with closing(consumer(self._options, settings)) as reader:
            self._group = reader.consumer_group_metadata()
            (found,) = reader.committed([TopicPartition(self._topic, 0)], TIMEOUT_S)
        if found.error is not None:
            # It has no offset either, which would mean that no batch was written.
            raise KafkaException(found.error)
        return int(found.offset)

    def _open(self, timeout_s: float) -> None:
        """Open the producer, and read the recorded number."""
        self._opened(timeout_s)
        if self._exactly_once:
            # `_written_once` reads the number again, and handles errors.
            with suppress(KafkaException):
                self._next_number = self._recorded_number()

    def _finish_opening(self) -> None:
        """Wait for the first producer; try again if that failed by an outage, which may be over."""
        opening, self._opening = self._opening, None
        if opening is None:
            return
        try:
            opening.result()
        except KafkaException as error:
            if not recoverable(error):
                raise
            self._open(_SECOND_CONTACT_S)

    def _opened(self, timeout_s: float | None = None) -> Producer:
        if self._producer is not None:
            return self._producer
        self._causes.clear()
        config: dict[str, Any] = {
            **CLIENTS["producer"],
            **self._options.properties_of("producer"),
            "delivery.report.only.error": True,
            "error_cb": self._causes.add,
        }
        if self._exactly_once:
            config["transactional.id"] = self._id
            config.setdefault("transaction.timeout.ms", _TRANSACTION_MS)
        producer: Producer = created(Producer, config)
        try:
            self._partitions = SinkPartitions.of(producer, self._topic, timeout_s)
            if self._exactly_once:
                producer.init_transactions(_FLUSH_S)
        except KafkaException:
            producer.poll(0)
            raise
        self._failed, self._next_number, self._producer = None, None, producer
        return producer

    def _produce(self, producer: Producer, messages: Sequence[pa.Table]) -> None:
        partitions = self._partitions
        if partitions is None or partitions.outdated:
            partitions = self._partitions = SinkPartitions.of(producer, self._topic)
        number = 0
        for task, rows in enumerate(messages):
            for batch in rows.to_batches():
                for first in range(0, batch.num_rows, _ROWS_AT_ONCE):
                    part = batch.slice(first, _ROWS_AT_ONCE)
                    chosen = partitions.of_rows(part, self._options.partitioner, task, number)
                    produce_rows(
                        producer.produce,
                        self._topic,
                        part,
                        list(chosen),
                        self._delivered,
                        partial(self._make_room, producer),
                    )
                    producer.poll(0)
                    number += part.num_rows

    def _make_room(self, producer: Producer) -> None:
        """Wait for the brokers to take records of a full queue."""
        if self._failed is not None and self._options.guarantee != "none":
            # The rest would time out, too, one full queue after the other.
            raise KafkaException(self._failed)
        producer.poll(0.1)

    def _delivered(self, error: KafkaError | None, message: object) -> None:
        if error is not None and self._failed is None:
            self._failed = error

    def _flush(self, producer: Producer) -> None:
        """Wait until the brokers have all records."""
        before, taken_at = None, time.monotonic()
        while (left := producer.flush(_FLUSH_STEP_S)) and self._failed is None:
            now = time.monotonic()
            if before is not None and left < before:
                taken_at = now
            elif now - taken_at >= _FLUSH_S:
                text = f"{left} records were not taken within {_FLUSH_S:.0f} s"
                raise KafkaException(KafkaError(KafkaError._MSG_TIMED_OUT, text))
            before = left
        if self._failed is not None:
            raise KafkaException(self._failed)

    def _cause(self, error: KafkaException | SystemError) -> KafkaException:
        """The error of the client; raises `error` if that is unknown.

        A fatal error that the client raises before it calls `_delivered` is the cause of a
        SystemError, or is lost. Then the producer raises it again.
        """
        if isinstance(error, KafkaException):
            return error
        if isinstance(error.__cause__, KafkaException):
            return error.__cause__
        if self._producer is not None and self._exactly_once:
            try:
                self._producer.abort_transaction(TIMEOUT_S)
            except KafkaException as fatal:
                return fatal
        if self._failed is not None:
            return KafkaException(self._failed)
        raise error


def _fenced(error: KafkaException) -> bool:
    cause = cause_of(error)
    fenced = (KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED)
    return cause is not None and cause.code() in fenced
