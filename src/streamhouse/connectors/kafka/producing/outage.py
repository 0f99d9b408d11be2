"""Failures of the brokers that pass by themselves, and calls that must end in time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from confluent_kafka import KafkaError, KafkaException

from streamhouse.connectors.kafka.client import is_outage

Result = TypeVar("Result")

_OUTAGE_S, _PAUSE_S = 60.0, 0.2
_LEAST_ATTEMPTS = 3
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


class Outage:
    """The failed attempts to write one batch.

    An attempt can last as long as the outage may, so some are made in any case.
    """

    def __init__(self) -> None:
        self._began: float | None = None
        self._attempts = 0

    @property
    def seconds(self) -> float:
        """The time since the first failure."""
        return 0.0 if self._began is None else time.monotonic() - self._began

    def may_retry(self) -> bool:
        """Count a failed attempt; returns whether to try again."""
        self._attempts += 1
        if self._began is None:
            self._began = time.monotonic()
        return self.seconds < _OUTAGE_S or self._attempts < _LEAST_ATTEMPTS

    def pause(self) -> None:
        """Wait for the next attempt."""
        time.sleep(_PAUSE_S)


def recoverable(error: KafkaException) -> bool:
    """Whether the same work may succeed later, with a new client."""
    cause = error.args[0] if error.args else None
    if not isinstance(cause, KafkaError) or cause.fatal():
        return False
    return cause.retriable() or is_outage(error) or cause.code() in _PASSING


def in_time(call: Callable[[], Result], seconds: float, what: str) -> Result:
    """The result of a call of a client that may not return; `KafkaException` when its time is over.

    The call is left to a thread, which keeps its client until it returns or the process ends.
    """
    try:
        return in_background(call, what).result(seconds)
    except TimeoutError:
        text = f"{what} was not answered within {seconds:.0f} s"
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, text)) from None


def in_background(call: Callable[[], Result], what: str) -> Future[Result]:
    """Start a call in a thread that does not keep the process alive."""
    result: Future[Result] = Future()

    def run() -> None:
        try:
            result.set_result(call())
        except BaseException as error:  # noqa: BLE001  # raised where the caller can see it
            result.set_exception(error)

    threading.Thread(target=run, name=f"kafka: {what}", daemon=True).start()
    return result
