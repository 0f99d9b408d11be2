"""Polls one table or view for changes in a thread of its own, while it has subscribers."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace

import pyarrow as pa

from streamhouse.errors import (
    BusyError,
    DataLossError,
    SqlError,
    StreamhouseError,
    TableError,
    TooLargeError,
    is_panic,
)
from streamhouse.options import hide_secrets
from streamhouse.serve.feeds.table_feed import Change, Feed
from streamhouse.serve.streams.encoding import Chunk, Stopped, encoded, events
from streamhouse.serve.streams.event import CHANGES, SNAPSHOT, Event, Moment
from streamhouse.serve.streams.follow_settings import FollowSettings
from streamhouse.serve.streams.state import state_chunks

log = logging.getLogger("streamhouse.serve")

RETRY_S = (0.1, 5.0)
_LOOK_S = 0.5
"""A poll ends after so long, even if a fast writer keeps adding snapshots."""


@dataclass(frozen=True)
class Found:
    """The result of a poll.

    `chunks` are the changes up to `moment`, or with `anew` all rows at it; None if they are more
    than a stream may send. `state` is that of `Feed.state`, `rows` the number of rows, None if
    unknown. `events` is what subscribers get. `first`: the first result of the stream, which has no
    subscribers yet. `keyed`: the source is a table with a primary key, or a view.
    """

    moment: Moment
    schema: pa.Schema
    state: pa.Table | None
    rows: int | None
    chunks: tuple[Chunk, ...] | None = ()
    events: tuple[Event, ...] = ()
    first: bool = False
    anew: bool = False
    keyed: bool = True


@dataclass
class Looks:
    """Poll statistics; written by the follower's thread, read by any thread.

    `error` is the last poll's error, None after a success.
    """

    polls: int = 0
    poll_ms: float = 0.0
    failures: int = 0
    error: str | None = None


Answer = Callable[[BaseException | None], None]


class Follower:
    """Polls a feed in a thread, encodes the changes once, and passes them to `hand_on`.

    `open_feed`, the feed, `hand_on`, `gone` and the callbacks of `ask` all run in that thread. A
    failed poll is retried after 0.1 s, then with exponential backoff up to 5 s; it then also finds
    what was committed in between. `gone` is called once, when a table that was read before has been
    missing for `settings.gone_s`.
    """

    def __init__(
        self,
        name: str,
        open_feed: Callable[[], Feed],
        settings: FollowSettings,
        hand_on: Callable[[Found], None],
        gone: Callable[[], None],
    ) -> None:
        self.looks = Looks()
        self._name = name
        self._open_feed = open_feed
        self._settings = settings
        self._hand_on = hand_on
        self._gone = gone
        self._missing_since: float | None = None
        self._feed: Feed | None = None
        self._incarnation = ""
        self._seen: Found | None = None
        # None: no polling until the first `ask`.
        self._pause_s: float | None = None
        self._asked: queue.SimpleQueue[Answer | None] = queue.SimpleQueue()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"follow {name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def ask(self, answer: Answer) -> None:
        """Poll now; `answer` is called with None, or with the error of the poll."""
        self._asked.put(answer)

    def stop(self) -> None:
        """Stop after the current poll; `join` waits for it."""
        self._stopping.set()
        self._asked.put(None)

    def join(self, seconds: float) -> None:
        self._thread.join(seconds)

    def _run(self) -> None:
        asked: list[Answer] = []
        try:
            while True:
                asked[:] = self._wait()
                if self._stopping.is_set():
                    break
                error = self._looked()
                for answer in asked:
                    answer(error)
        finally:
            self._drop_feed()
            asked.extend(self._waiting())
            for answer in asked:
                answer(BusyError(f"the stream of {self._name} has ended; try again"))

    def _wait(self) -> list[Answer]:
        first: list[Answer | None] = []
        with suppress(queue.Empty):
            first.append(self._asked.get(timeout=self._pause_s))
        return [answer for answer in first if answer is not None] + self._waiting()

    def _waiting(self) -> list[Answer]:
        found = []
        with suppress(queue.Empty):
            while True:
                answer = self._asked.get_nowait()
                if answer is not None:
                    found.append(answer)
        return found

    def _looked(self) -> BaseException | None:
        started = time.monotonic()
        try:
            self._look()
        except Stopped:
            return BusyError("the server is shutting down; try again later")
        except BaseException as error:
            if not isinstance(error, Exception) and not is_panic(error):
                raise
            # Subscribers stay connected; the next poll may succeed.
            self._failed(error)
            return error
        finally:
            self.looks.polls += 1
            self.looks.poll_ms += 1000 * (time.monotonic() - started)
        if self.looks.error is not None:
            log.info("%s can be read again", self._name)
            self.looks.error = None
        self._missing_since = None
        self._pause_s = self._settings.every_ms / 1000
        return None

    def _failed(self, error: BaseException) -> None:
        self.looks.failures += 1
        least, most = RETRY_S
        first = self.looks.error is None
        self._pause_s = least if first else min(most, 2 * (self._pause_s or least))
        self.looks.error = hide_secrets(str(error))
        if first:
            log.warning("%s cannot be read; retrying: %s", self._name, self.looks.error)
        # The feed's position is uncertain; a new feed resumes from the last result handed on.
        self._drop_feed()
        self._missed(error)

    def _missed(self, error: BaseException) -> None:
        """Call `gone` for a table that has been missing for `gone_s`; until then, retry soon."""
        missing = isinstance(error, TableError | SqlError) and not isinstance(error, TooLargeError)
        if not missing or self._seen is None:
            self._missing_since = None
            return
        now = time.monotonic()
        if self._missing_since is None:
            self._missing_since = now
        left = self._missing_since + self._settings.gone_s - now
        if left > 0:
            self._pause_s = min(left, self._pause_s or left)
            return
        log.info("%s no longer exists; its streams end", self._name)
        self._seen = None
        self._gone()

    def _look(self) -> None:
        deadline = time.monotonic() + _LOOK_S
        try:
            while self._step() and time.monotonic() < deadline and not self._stopping.is_set():
                pass
        except TooLargeError:
            # Otherwise subscribers would take the silence for "nothing has changed".
            if self._seen is not None:
                self._hand_on(replace(self._seen, chunks=None, events=()))
            raise
        except DataLossError as error:
            if self._seen is None:
                raise
            log.warning("%s: its subscribers get all rows again: %s", self._name, error)
            self._begin_anew()

    def _step(self) -> bool:
        """Poll once; returns whether there may be more changes."""
        feed = self._opened()
        change = feed.poll()
        seen = self._seen
        if seen is None:
            self._first(feed, change)
            return False
        moment = seen.moment
        if feed.replaced(moment.snapshot, moment.time_ms, immediate=change is not None):
            log.info(
                "%s was recreated or rolled back; its subscribers get all rows again", self._name
            )
            self._begin_anew()
            return True
        if change is not None:
            return self._changed(feed, change, seen)
        if feed.refresh() and not same_columns(feed.schema, seen.schema):
            self._hand_on_anew(feed, moment, seen.rows)
        return False

    def _opened(self) -> Feed:
        """The open feed; a new one resumes from the last result if the table is still the same."""
        if self._feed is not None:
            return self._feed
        feed = self._open_feed()
        try:
            incarnation = feed.incarnation
            if self._seen is not None and incarnation == self._incarnation:
                self._resume(feed, self._seen)
        except BaseException:
            feed.close()
            raise
        self._feed, self._incarnation = feed, incarnation
        return feed

    def _resume(self, feed: Feed, seen: Found) -> None:
        snapshot = seen.moment.snapshot
        if same_columns(feed.schema, seen.schema) and (snapshot or seen.state is not None):
            feed.resume_after(snapshot, seen.state)

    def _begin_anew(self) -> None:
        """Reopen the feed and hand on the current state as a new initial state."""
        self._drop_feed()
        self._incarnation = ""
        feed = self._opened()
        change = feed.poll()
        self._hand_on_anew(feed, self._moment(change), None if change is None else change.rows)

    def _first(self, feed: Feed, change: Change | None) -> None:
        moment = self._moment(change)
        rows = 0 if change is None else change.rows
        self._give(feed, moment, rows, first=True)

    def _changed(self, feed: Feed, change: Change, seen: Found) -> bool:
        """Hand on a change; returns whether there may be more changes."""
        same = feed.incarnation == self._incarnation and same_columns(feed.schema, seen.schema)
        self._incarnation = feed.incarnation
        moment = self._moment(change)
        if moment == seen.moment and same:
            return False
        backwards = moment.snapshot <= seen.moment.snapshot
        if backwards or not same or (change.first and seen.moment.snapshot):
            self._hand_on_anew(feed, moment, change.rows)
            return True
        chunks: tuple[Chunk, ...] | None
        what = f"snapshot {moment.snapshot} of {self._name}"
        try:
            chunks = encoded(change.batches, self._settings, what, None, self._stopping.is_set)
        except TooLargeError as error:
            log.warning("%s; its subscribers must start again", error)
            chunks = None
        self._give(feed, moment, change.rows, chunks)
        return True

    def _hand_on_anew(self, feed: Feed, moment: Moment, rows: int | None) -> None:
        chunks: tuple[Chunk, ...] | None
        try:
            chunks = state_chunks(
                feed, moment.snapshot, self._settings, self._name, self._stopping.is_set
            )
        except TooLargeError as error:
            log.warning("%s; its subscribers must start again", error)
            chunks = None
        self._give(feed, moment, rows, chunks, anew=True)

    def _give(
        self,
        feed: Feed,
        moment: Moment,
        rows: int | None,
        chunks: tuple[Chunk, ...] | None = (),
        first: bool = False,
        anew: bool = False,
    ) -> None:
        keyed = feed.table is None or bool(feed.primary_key)
        made: tuple[Event, ...] = ()
        if chunks or (anew and chunks is not None):
            made = events(SNAPSHOT if anew else CHANGES, moment, chunks, self._settings)
        found = Found(moment, feed.schema, feed.state, rows, chunks, made, first, anew, keyed)
        self._hand_on(found)
        self._seen = found

    def _moment(self, change: Change | None) -> Moment:
        if change is None:
            return Moment.of(self._incarnation, 0, 0)
        return Moment.of(self._incarnation, change.snapshot, change.commit_time_ms)

    def _drop_feed(self) -> None:
        feed, self._feed = self._feed, None
        if feed is not None:
            with suppress(StreamhouseError, OSError):
                feed.close()


def same_columns(one: pa.Schema, other: pa.Schema) -> bool:
    """Whether two schemas have the same names and types in the same order."""
    return bool(one.names == other.names and one.types == other.types)
