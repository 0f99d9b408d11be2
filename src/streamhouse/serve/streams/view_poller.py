"""Polls one table or view for changes in a thread of its own, while it has subscribers."""

import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field, replace

import pyarrow as pa

from streamhouse.errors import (
    BusyError,
    DataLossError,
    LimitError,
    SqlError,
    StreamhouseError,
    TableError,
    TooLargeError,
    is_panic,
)
from streamhouse.options import hide_secrets
from streamhouse.serve.access_log import LOGGER
from streamhouse.serve.feeds.feed import Feed, FeedChange
from streamhouse.serve.settings import StreamSettings
from streamhouse.serve.streams.event import (
    CHANGES,
    EncodingStopped,
    StreamEncoder,
    StreamEvent,
    StreamPosition,
    row_count,
)

RETRY_S = (0.1, 5.0)
_POLL_S = 0.5
"""A poll ends after so long, even if a fast writer keeps adding snapshots."""


@dataclass
class StreamStats:
    """Statistics of the streams of the view `name`, present and past; thread-safe.

    Current values: `subscribers` and `snapshot`. `freshness_ms` is the age of the last change when
    it was ready to be sent. The others are counters: `events` and `bytes` encoded (however many
    clients got them), `rows` encoded in changes (an updated row counts once), `state_rows` encoded
    for initial states, `overflows` (subscribers disconnected because they read too slowly),
    `polls`, `poll_ms` (their total duration), and `failures` among them.
    """

    name: str
    subscribers: int = 0
    snapshot: int | None = None
    freshness_ms: int | None = None
    events: int = 0
    rows: int = 0
    state_rows: int = 0
    bytes: int = 0
    overflows: int = 0
    polls: int = 0
    poll_ms: float = 0.0
    failures: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    def add(self, **counts: float) -> None:
        """Add to counters, by their names."""
        with self._lock:
            for name, count in counts.items():
                setattr(self, name, getattr(self, name) + count)


@dataclass(frozen=True)
class PollResult:
    """The result of a poll.

    `events` have the changes up to `commit`, or with `full` all rows at it; None if they are more
    than a stream may send. `state` is `Feed.kept`.
    """

    commit: StreamPosition
    schema: pa.Schema
    state: pa.Table | None
    events: tuple[StreamEvent, ...] | None = ()
    full: bool = False


class ViewPoller:
    """Polls a feed in a thread, encodes the changes once, and passes them to `on_result`.

    `open_feed`, the feed, `on_result` and `on_missing` all run in that thread. A failed poll is
    retried after 0.1 s, then with exponential backoff up to 5 s; the next successful poll returns
    all changes since the last one. `on_missing` is called once, when a table that was read before
    has been missing for `settings.missing_s`.
    """

    def __init__(
        self,
        name: str,
        open_feed: Callable[[], Feed],
        settings: StreamSettings,
        stats: StreamStats,
        on_result: Callable[[PollResult], None],
        on_missing: Callable[[], None],
    ) -> None:
        self._stats = stats
        self._failing = False
        self._name = name
        self._open_feed = open_feed
        self._settings = settings
        self._on_result = on_result
        self._on_missing = on_missing
        self._missing_since: float | None = None
        self._feed: Feed | None = None
        self._incarnation = ""
        self._seen: PollResult | None = None
        # None: no polling until the first `poll_now`.
        self._pause_s: float | None = None
        self._waiting: list[Future[BaseException | None]] = []
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._encoder = StreamEncoder(name, settings, self._stopping.is_set)
        self._thread = threading.Thread(target=self._run, name=f"follow {name}", daemon=True)
        self._thread.start()

    def poll_now(self) -> Future[BaseException | None]:
        """Poll now; the result is the error of the poll, if it fails."""
        done: Future[BaseException | None] = Future()
        self._waiting.append(done)
        self._wake.set()
        return done

    def stop(self) -> None:
        """Stop, and cancel the current poll; `join` waits for it."""
        self._stopping.set()
        feed = self._feed
        if feed is not None:
            feed.cancel()
        self._wake.set()

    def join(self, seconds: float) -> None:
        self._thread.join(seconds)

    def _run(self) -> None:
        waiting: list[Future[BaseException | None]] = []
        error: BaseException | None = BusyError(f"the stream of {self._name} has ended; try again")
        try:
            while not self._stopping.is_set():
                self._wake.wait(self._pause_s)
                self._wake.clear()
                if not self._stopping.is_set():
                    waiting, self._waiting = self._waiting, []
                    _end(waiting, self._poll_safely())
        finally:
            self._drop_feed()
            _end([*waiting, *self._waiting], error)

    def _poll_safely(self) -> BaseException | None:
        started = time.monotonic()
        try:
            self._poll()
        except EncodingStopped:
            return BusyError("the server is shutting down; try again later")
        except BaseException as error:
            if not isinstance(error, Exception) and not is_panic(error):
                raise
            if self._stopping.is_set():
                return BusyError(f"the stream of {self._name} has ended; try again")
            # Subscribers stay connected; the next poll may succeed.
            self._failed(error)
            return error
        finally:
            self._stats.add(polls=1, poll_ms=1000 * (time.monotonic() - started))
        if self._failing:
            LOGGER.info("%s can be read again", self._name)
            self._failing = False
        self._missing_since = None
        self._pause_s = self._settings.every_ms / 1000
        return None

    def _failed(self, error: BaseException) -> None:
        self._stats.add(failures=1)
        least, most = RETRY_S
        if self._failing:
            self._pause_s = min(most, 2 * (self._pause_s or least))
        else:
            self._pause_s, self._failing = least, True
            text = hide_secrets(str(error))
            LOGGER.warning("%s cannot be read; retrying: %s", self._name, text)
        # The feed's position is uncertain; a new feed resumes from the last result passed on.
        self._drop_feed()
        self._check_missing(error)

    def _check_missing(self, error: BaseException) -> None:
        """Call `on_missing` for a table missing for `missing_s`; until then, retry soon."""
        missing = isinstance(error, TableError | SqlError) and not isinstance(error, TooLargeError)
        if not missing or self._seen is None:
            self._missing_since = None
            return
        now = time.monotonic()
        if self._missing_since is None:
            self._missing_since = now
        remaining_s = self._missing_since + self._settings.missing_s - now
        if remaining_s > 0:
            self._pause_s = min(remaining_s, self._pause_s or remaining_s)
            return
        LOGGER.info("%s no longer exists; its streams end", self._name)
        self._seen = None
        self._on_missing()

    def _poll(self) -> None:
        deadline = time.monotonic() + _POLL_S
        try:
            while self._step() and time.monotonic() < deadline and not self._stopping.is_set():
                pass
        except (TooLargeError, LimitError):
            # Otherwise subscribers would assume that nothing has changed.
            if self._seen is not None:
                self._on_result(replace(self._seen, events=None))
            raise
        except DataLossError as error:
            if self._seen is None:
                raise
            LOGGER.warning("%s: its subscribers get all rows again: %s", self._name, error)
            self._restart()

    def _step(self) -> bool:
        """Poll once; returns whether there may be more changes."""
        feed = self._current_feed()
        if self._stopping.is_set():
            # `stop` may not have seen the feed.
            raise EncodingStopped
        change = feed.poll()
        seen = self._seen
        if seen is None:
            self._emit(feed, self._commit(change))
            return False
        commit = seen.commit
        if feed.was_replaced(commit.snapshot, commit.time_ms, immediate=change is not None):
            LOGGER.info(
                "%s was recreated or rolled back; its subscribers get all rows again", self._name
            )
            self._restart()
            return True
        if change is not None:
            return self._changed(feed, change, seen)
        if feed.refresh() and not same_columns(feed.schema, seen.schema):
            self._emit(feed, commit, full=True)
        return False

    def _current_feed(self) -> Feed:
        """The open feed; a new one resumes from the last result if the table is still the same."""
        if self._feed is not None:
            return self._feed
        feed = self._open_feed()
        try:
            incarnation, seen = feed.incarnation, self._seen
            if seen is not None and incarnation == self._incarnation:
                snapshot, state = seen.commit.snapshot, seen.state
                if same_columns(feed.schema, seen.schema) and (snapshot or state is not None):
                    feed.resume_after(snapshot, state)
        except BaseException:
            feed.close()
            raise
        self._feed, self._incarnation = feed, incarnation
        return feed

    def _restart(self) -> None:
        """Reopen the feed and pass on the current state as a new initial state."""
        self._drop_feed()
        self._incarnation = ""
        feed = self._current_feed()
        self._emit(feed, self._commit(feed.poll()), full=True)

    def _changed(self, feed: Feed, change: FeedChange, seen: PollResult) -> bool:
        """Pass on a change; returns whether there may be more changes."""
        same = feed.incarnation == self._incarnation and same_columns(feed.schema, seen.schema)
        self._incarnation = feed.incarnation
        commit = self._commit(change)
        if commit == seen.commit and same:
            return False
        backwards = commit.snapshot <= seen.commit.snapshot
        full = backwards or not same or (change.is_whole_table and bool(seen.commit.snapshot))
        self._emit(feed, commit, change.batches, full)
        return True

    def _emit(
        self,
        feed: Feed,
        commit: StreamPosition,
        changes: Iterable[pa.RecordBatch] = (),
        full: bool = False,
    ) -> None:
        """Pass on the changes that lead to a commit, or with `full` all rows at it."""
        events: tuple[StreamEvent, ...] | None
        subject = f"snapshot {commit.snapshot} of {self._name}"
        try:
            if full:
                events = self._encoder.state(commit, *feed.inserts(commit.snapshot))
            else:
                events = self._encoder.events(CHANGES, commit, changes, subject)
        except TooLargeError as error:
            LOGGER.warning("%s; its subscribers must start again", error)
            events = None
        if events is not None and not full and not row_count(events):
            events = ()
        result = PollResult(commit, feed.schema, feed.kept, events, full)
        self._on_result(result)
        self._seen = result

    def _commit(self, change: FeedChange | None) -> StreamPosition:
        if change is None:
            return StreamPosition.of(self._incarnation, 0, 0)
        return StreamPosition.of(self._incarnation, change.snapshot, change.commit_time_ms)

    def _drop_feed(self) -> None:
        feed, self._feed = self._feed, None
        if feed is not None:
            with suppress(StreamhouseError, OSError):
                feed.close()


def _end(waiting: list[Future[BaseException | None]], error: BaseException | None) -> None:
    """Give the result of a poll to those that wait for it and have not been told yet."""
    for done in waiting:
        if not done.done() and done.set_running_or_notify_cancel():
            done.set_result(error)


def same_columns(one: pa.Schema, other: pa.Schema) -> bool:
    """Whether two schemas have the same names, types and expressions in the same order."""
    same = one.names == other.names and one.types == other.types
    return bool(same and one.metadata == other.metadata)
