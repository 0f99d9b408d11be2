"""Connections to Kafka: clients, topics with their partitions, and the ends of partitions."""

import re
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import Any, TypeAlias

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec

from streamhouse.close_matches import nearest
from streamhouse.connectors.kafka.options import CLIENTS, KafkaOptions
from streamhouse.errors import ConnectError, OptionError, StreamhouseError, TableError

Partition: TypeAlias = tuple[str, int]
"""A topic and the number of one of its partitions."""

TIMEOUT_S = 10.0
FIRST_CONTACT_S, _REFUSED_S = 7.0, 3.0
"""How long brokers may take to answer at first, and to accept connections and logins.

A wrong address, protocol or login shows as no answer. Brokers that have answered once may take
twice `TIMEOUT_S`, as when they restart.
"""
_RECENT_ERRORS = 20
_NO_BROKER = "no broker can be reached"
_PAUSE_S, _POLL_S = 0.2, 0.02


class Client:
    """An admin client of the cluster that a table's options name; driver only."""

    def __init__(self, options: KafkaOptions) -> None:
        self._options = options
        self._causes = ConnectionErrors()
        self._admin = self._connected()
        self._answered = False
        level = options.properties.get("isolation.level", "read_committed")
        committed = level == "read_committed"
        self._level = (
            IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        )

    def _connected(self) -> Any:
        own = {"log_level": "0", "error_cb": self._causes.add}
        return created(AdminClient, {**self._options.properties_of("admin"), **own})

    def topics(self) -> dict[str, tuple[str, int]]:
        """The topics of the table, each with its id and its number of partitions.

        Raises `ConnectError`, and `TableError` if a named topic does not exist.
        """
        options = self._options
        names: list[str] = list(options.topics)
        if options.pattern is not None:
            pattern = re.compile(options.pattern)
            names = [name for name in self._all() if pattern.fullmatch(name)]
        found = {}
        for name, described in self._results(
            lambda timeout_s: (
                self._admin.describe_topics(TopicCollection(names), request_timeout=timeout_s)
                if names
                else {}
            )
        ).items():
            # Flink's patterns do not match the topics of the brokers themselves either.
            if options.pattern is None or not described.is_internal:
                found[name] = (str(described.topic_id), len(described.partitions))
        if not found:
            raise TableError(
                f"Kafka at {options.servers} has no topic that matches '{options.pattern}'"
            )
        return found

    def _results(self, request: Callable[[float], Mapping[Any, Future[Any]]]) -> dict[Any, Any]:
        """The results of a request, which is repeated for a while if the brokers are not ready.

        `request` takes its timeout, in seconds.
        """
        deadline = time.monotonic() + self._patience_s
        timeout_s = min(TIMEOUT_S, self._patience_s)
        self._causes.clear()
        while True:
            about = None
            try:
                found = {}
                futures = request(timeout_s)
                if not self._answered:
                    self._await_first(futures.values())
                for about, future in futures.items():
                    found[about] = future.result(2 * timeout_s)
                self._answered = True
                return found
            except (KafkaException, TimeoutError) as error:
                timeout_s = min(TIMEOUT_S, deadline - time.monotonic())
                if not is_outage(error) or timeout_s < _PAUSE_S:
                    topic = about if isinstance(about, str) else getattr(about, "topic", None)
                    raise self._error(error, topic) from None
            time.sleep(_PAUSE_S)
            # The client may know a leader from before the brokers restarted.
            self._admin = self._connected()

    def _await_first(self, futures: Iterable[Future[Any]]) -> None:
        """Wait for the first answer; raises `ConnectError` if all brokers refuse for a while."""
        refused_at = time.monotonic() + _REFUSED_S
        while not all(future.done() for future in futures):
            self._admin.poll(_POLL_S)
            if self._causes.of_all_brokers and time.monotonic() > refused_at:
                raise self._error(KafkaException(KafkaError(KafkaError._TRANSPORT, _NO_BROKER)))

    @property
    def _patience_s(self) -> float:
        return 2 * TIMEOUT_S if self._answered else FIRST_CONTACT_S

    def _all(self) -> list[str]:
        try:
            return sorted(self._admin.list_topics(timeout=self._patience_s).topics)
        except KafkaException as error:
            raise self._error(error) from None

    def ends(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """The offset after the last readable record of each partition."""
        return self._offsets(dict.fromkeys(partitions, OffsetSpec.latest()))

    def beginnings(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """The offset of the oldest record of each partition."""
        return self._offsets(dict.fromkeys(partitions, OffsetSpec.earliest()))

    def at_time(self, partitions: Iterable[Partition], epoch_ms: int) -> dict[Partition, int]:
        """The first offset of a time; the end of a partition without later records."""
        wanted = list(partitions)
        found = self._offsets(dict.fromkeys(wanted, OffsetSpec.for_timestamp(epoch_ms)))
        late = [partition for partition in wanted if found[partition] < 0]
        return {**found, **(self.ends(late) if late else {})}

    def _offsets(self, wanted: Mapping[Partition, Any]) -> dict[Partition, int]:
        if not wanted:
            return {}
        request = {TopicPartition(*partition): spec for partition, spec in wanted.items()}
        results = self._results(
            lambda timeout_s: self._admin.list_offsets(
                request, isolation_level=self._level, request_timeout=timeout_s
            )
        )
        return {
            (partition.topic, partition.partition): int(at.offset)
            for partition, at in results.items()
        }

    def _error(self, error: Exception, topic: str | None = None) -> StreamhouseError:
        cause = cause_of(error)
        if topic is not None and cause is not None and cause.code() in _NO_TOPIC:
            return TableError(
                f"Kafka at {self._options.servers} has no topic '{topic}'; "
                f"{nearest(topic, [found for found in self._all() if not found.startswith('__')])}"
            )
        self._admin.poll(0)
        return kafka_error(self._options, error, self._causes.cause())


class ConnectionErrors:
    """Why a client's connections have failed; what then fails is only reported as a timeout.

    `add` is the client's `error_cb`, which it calls in `poll` and `flush`.
    """

    def __init__(self) -> None:
        self._recent: deque[KafkaError] = deque(maxlen=_RECENT_ERRORS)
        self.of_all_brokers = False
        """Whether the connections to all brokers have failed."""

    def add(self, error: KafkaError) -> None:
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            self.of_all_brokers = True
        else:
            self._recent.append(error)

    def clear(self) -> None:
        self._recent.clear()
        self.of_all_brokers = False

    def cause(self) -> KafkaError | None:
        """A refused login or certificate rather than its effects; None without an error."""
        known = list(self._recent)
        refused = [error for error in known if error.code() in _NO_ACCESS]
        return next(reversed(refused or known), None)


def cause_of(error: Exception) -> KafkaError | None:
    """The client's own error in an exception, if it has one."""
    cause = error.args[0] if error.args else None
    return cause if isinstance(cause, KafkaError) else None


def is_outage(error: Exception) -> bool:
    """Whether a later attempt may succeed: brokers restart, or partitions have no leader yet."""
    cause = cause_of(error)
    return cause is not None and cause.code() in _NOT_READY


_NOT_READY = (
    KafkaError._STATE,
    KafkaError._TIMED_OUT,
    KafkaError._TRANSPORT,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError._NOENT,
)


_NO_TOPIC = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC)
_NO_ACCESS = (
    KafkaError._AUTHENTICATION,
    KafkaError._SSL,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.UNSUPPORTED_SASL_MECHANISM,
)


def kafka_error(
    options: KafkaOptions, error: Exception | KafkaError, cause: KafkaError | None = None
) -> StreamhouseError:
    """The error of a client as one of ours."""
    text = text_of(error)
    if cause is not None:
        text = text_of(cause) if cause.code() in _NO_ACCESS else f"{text} ({text_of(cause)})"
    return ConnectError(
        f"Kafka at {options.servers}: {text}; check 'properties.bootstrap.servers', the "
        "'properties.security.protocol' and the login"
    )


def text_of(error: Exception | KafkaError) -> str:
    """What the client says about an error."""
    cause = error.args[0] if isinstance(error, KafkaException) else error
    return cause.str() if isinstance(cause, KafkaError) else str(cause) or "no answer"


def created(kind: Any, config: Mapping[str, Any]) -> Any:
    """A client of confluent-kafka; `OptionError` for a property that it does not have."""
    try:
        return kind(dict(config))
    except KafkaException as error:
        raise OptionError(f"'properties.*': {text_of(error)}") from None


def consumer(options: KafkaOptions, more: Mapping[str, str] | None = None) -> Consumer:
    """A consumer that reads assigned partitions only, whose group is reported to, if any."""
    config = {"isolation.level": "read_committed", **options.properties, **CLIENTS["consumer"]}
    config.setdefault("group.id", "streamhouse")
    found: Consumer = created(Consumer, {**config, **(more or {})})
    return found
