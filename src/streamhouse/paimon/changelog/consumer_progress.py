"""The progress of a reader with a `consumer-id`, stored in its table for the next of that id.

The consumer's file names the next snapshot to read; snapshot expiry keeps that one and all later
ones. A reader that compares states (a keyed table without a changelog, `watch`) needs the state
before it as well, which a second consumer, `streamhouse-before-<id>`, keeps.
"""

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from streamhouse.errors import DataLossError, OptionError
from streamhouse.options import OptionValues, of_option, options_of, table_of
from streamhouse.paimon.changelog.consumers import BEFORE, QUERY, Consumers
from streamhouse.paimon.read.table import Table
from streamhouse.source import Offset

_OPTIONS = options_of(table_of(__package__, "stream_options.toml")["consumer"])
CONSUMER_KEYS = tuple(option.key for option in _OPTIONS)
_ID = re.compile(r"[\w.@:=+-]{1,200}")
_EVERY_S = 5.0
"""How often a reader refreshes its consumer and, if at-least-once, writes its progress."""


@dataclass(frozen=True)
class ConsumerOptions:
    """`consumer-id` and the options that need it.

    `lazy` is the mode at-least-once: progress is written every few seconds instead of with each
    batch. `expires_ms` is how long the consumer outlives its readers; None: the table's own
    `consumer.expiration-time` applies.
    """

    id: str
    lazy: bool = False
    expires_ms: int | None = of_option("consumer.expiration-time", None)
    ignore_progress: bool = of_option("consumer.ignore-progress", False)

    @classmethod
    def parse(cls, options: Mapping[str, str], where: str) -> Self | None:
        """Parse options; None without a `consumer-id`. Raises `OptionError`."""
        own = {key: value for key, value in options.items() if key in CONSUMER_KEYS}
        values = OptionValues(_OPTIONS, own)
        values.check(where)
        consumer_id = values["consumer-id"]
        if consumer_id is None:
            return None
        if not _ID.fullmatch(consumer_id) or consumer_id.startswith("."):
            raise OptionError(
                f"{where}: 'consumer-id' is '{consumer_id}'; it becomes a file name: use letters, "
                "digits and _ . - @ : = +"
            )
        if consumer_id.startswith(QUERY):
            raise OptionError(
                f"{where}: 'consumer-id' is '{consumer_id}'; names that begin with '{QUERY}' are "
                "reserved for continuous queries; choose another"
            )
        lazy = values["consumer.mode"] == "at-least-once"
        return values.record(cls, id=consumer_id, lazy=lazy)


class ConsumerProgress:
    """The progress of one reader of one table; driver only.

    Writing the same position twice changes nothing. Concurrent readers of one id share the furthest
    position.
    """

    def __init__(self, options: ConsumerOptions) -> None:
        self._options = options
        self._written = 0
        self._position: tuple[int, bool] | None = None
        self._written_at = time.monotonic()

    def start(self, table: Table) -> int | None:
        """The next snapshot to read, if a reader of this id has stored its progress; else None.

        Raises `DataLossError` if the table cannot be read from there: it was rolled back, or that
        snapshot has expired.
        """
        options = self._options
        consumers = Consumers(table)
        consumer = None if options.ignore_progress else consumers.get(options.id)
        if consumer is not None and consumers.expired(consumer):
            consumers.drop(consumer.id)
            consumer = None
        if consumer is None:
            return None
        next_snapshot = consumer.next_snapshot
        earliest, latest = table.earliest_snapshot_id() or 1, table.latest_snapshot_id() or 0
        if not earliest <= next_snapshot <= latest + 1:
            raise DataLossError(
                f"table {table.identifier}: consumer '{options.id}' would read snapshot "
                f"{next_snapshot} next, but the table has {earliest} to {latest}; CALL "
                f"sys.reset_consumer('{table.identifier}', '{options.id}') to start anew, or "
                "with a snapshot as the third argument to continue there"
            )
        return next_snapshot

    def reached(self, table: Table, offset: Offset, compares: bool) -> None:
        """Record that all rows up to `offset` are processed.

        `compares`: the reader still needs the state at `offset`.
        """
        if not offset or ("split" in offset and not offset.get("changes")):
            # In the middle of the initial full read there is no snapshot to continue from.
            return
        next_snapshot = int(offset["snapshot"]) + (0 if "split" in offset else 1)
        self._position = (next_snapshot, compares)
        if not self._options.lazy or time.monotonic() - self._written_at >= _EVERY_S:
            self.flush(table)

    def flush(self, table: Table) -> None:
        """Write the latest position, if it is not written yet."""
        if self._position is None or self._position[0] == self._written:
            return
        next_snapshot, compares = self._position
        self._hold(table, next_snapshot, compares, self._options.ignore_progress)
        self._written = next_snapshot

    def keep_alive(self, table: Table) -> None:
        """Refresh the consumer every few seconds, so that it does not expire."""
        if self._position is None or time.monotonic() - self._written_at < _EVERY_S:
            return
        if self._options.lazy:
            self.flush(table)
        # Another process of the same reader may have written a later position, which stays.
        self._hold(table, 0, self._position[1], back=False)

    def _hold(self, table: Table, next_snapshot: int, compares: bool, back: bool) -> None:
        options, consumers = self._options, Consumers(table)
        if compares:
            consumers.hold(f"{BEFORE}{options.id}", next_snapshot - 1, back=back)
        consumers.hold(options.id, next_snapshot, expires_ms=options.expires_ms, back=back)
        self._written_at = time.monotonic()
