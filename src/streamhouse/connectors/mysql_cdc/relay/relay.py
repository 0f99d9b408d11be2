"""The one binlog reader of a pipeline: a thread that writes a relay log of its tables' changes.

docs/decisions/042-one-binlog-reader.md says why."""

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from queue import SimpleQueue

import pymysql

from streamhouse.connectors.base import SharingSource
from streamhouse.connectors.json_records import from_json
from streamhouse.connectors.mysql_cdc.binlog.binlog_inspector import BinlogInspector
from streamhouse.connectors.mysql_cdc.binlog.dump import (
    BinlogDump,
    earliest_position,
    log_files,
    reset_error,
)
from streamhouse.connectors.mysql_cdc.binlog.format.events import HEADER, HEARTBEATS
from streamhouse.connectors.mysql_cdc.binlog.startup import position_on_other_server
from streamhouse.connectors.mysql_cdc.relay.files import drop_old, held_bytes
from streamhouse.connectors.mysql_cdc.relay.log import RelayLog
from streamhouse.errors import DataLossError, StreamhouseError
from streamhouse.mysql.connection import Backoff, Session, is_lost, readable, start_session
from streamhouse.mysql.metadata import TableNames
from streamhouse.mysql.options import MySqlOptions, parse
from streamhouse.mysql.position import BinlogPosition, BinlogState, position_of
from streamhouse.mysql.table import Server, check_server
from streamhouse.source import Offset
from streamhouse.work_folder import work_folder

log = logging.getLogger("streamhouse.mysql")

FOLDER = ".relay"
"""The folder of relay logs, beside the checkpoints of a pipeline's queries."""
MOST_BYTES = 256 * 1024 * 1024
_GATHER_S = 0.02
_SMALL_BLOCK = 64 * 1024
_RECONNECT_S = 300.0
_RESET_CHECK_S = 5.0
_CLEANUP_S = 1.0
_FULL_S = 0.1


class Relay:
    """Reads a server's binlog over one connection, and keeps the changes of `tables` in `folder`.

    `held`: what `close` closes, such as the `work_folder` that the folder is.

    It starts at the oldest of `resume_positions`, those of all queries (None: not known), after
    which the binlog has at most half of `most_bytes`, or else at the end of the binlog. Queries
    read older changes, and changes that the log has dropped because of `most_bytes`, over
    connections of their own. `gtids`: those before the positions for which they are known. If all
    queries are further behind, but near each other, the relay starts there, and waits for them
    until it has reached the current end of the binlog.

    It reconnects after a lost connection. If that fails for five minutes, or the server cannot
    continue from the log's end, `error` is set, once for all tables.
    """

    def __init__(
        self,
        options: MySqlOptions,
        tables: Sequence[TableNames],
        folder: Path,
        resume_positions: Sequence[BinlogPosition | None] = (),
        most_bytes: int = MOST_BYTES,
        gtids: Mapping[BinlogPosition, str] | None = None,
        held: ExitStack | None = None,
    ) -> None:
        self._options = options
        self._tables = tables
        self.folder, self._held = folder, held or ExitStack()
        self._resume_positions, self._gtids = resume_positions, gtids or {}
        self._most = most_bytes
        self._waits_until: BinlogPosition | None = None
        self._dump: BinlogDump | None = None
        self._joining: SimpleQueue[Sequence[TableNames]] = SimpleQueue()
        self._session = Session(options)
        self._stopped = threading.Event()
        self._ready = threading.Event()
        self._needed: BinlogPosition | None = None
        self._cleaned = self._measured = 0.0
        self._received = False
        self._thread = threading.Thread(target=self._run, name="mysql-relay", daemon=True)
        self.error: StreamhouseError | None = None

    def start(self, wait_s: float = 30.0) -> None:
        """Start the thread; waits up to `wait_s` seconds until it has events.

        Raises its error if it fails until then.
        """
        self._thread.start()
        self._ready.wait(wait_s)
        self.check()

    def check(self) -> None:
        """Raise the error that ended the thread, if any."""
        if self.error is not None:
            raise self.error

    def needed_from(self, position: BinlogPosition | None) -> None:
        """Allow dropping events before `position`; None: only those above the size limit."""
        self._needed = position

    def follow(self, tables: Sequence[TableNames]) -> None:
        """Keep the changes of more tables, too, in events that arrive after this call."""
        self._joining.put(tables)

    def close(self, wait_s: float = 10.0) -> None:
        """Stop the thread, and close what it holds."""
        self._stopped.set()
        # Otherwise it would wait for the next event, which may be a heartbeat in a second.
        if (dump := self._dump) is not None:
            dump.interrupt()
        if self._thread.is_alive():
            self._thread.join(wait_s)
        self._held.close()

    def _run(self) -> None:
        try:
            self._follow_until_stopped()
        except StreamhouseError as error:
            self.error = error
        except OSError as error:
            log.warning(
                "mysql-cdc: there is no relay log, so each table opens its own binlog "
                "connection: %s",
                error,
            )
        finally:
            self._ready.set()
            self._session.close()

    def _follow_until_stopped(self) -> None:
        self._server = check_server(self._session, self._options)
        start, self._waits_until = relay_startup(
            self._session, self._server, self._resume_positions, self._most // 2
        )
        gtids = self._gtids.get(start)
        if gtids is None:
            gtids = self._server.gtids(self._session, start)
        relay_log = RelayLog(self.folder, self._tables, start, self._most, self._server, gtids)
        backoff = Backoff(self._options, _RECONNECT_S)
        try:
            while not self._stopped.is_set():
                self._received = False
                try:
                    self._follow(relay_log)
                except pymysql.err.MySQLError as error:
                    if self._stopped.is_set():
                        return
                    relay_log.undo()
                    if self._received:
                        backoff = Backoff(self._options, _RECONNECT_S)
                    if not is_lost(error) or not backoff.wait(error, self._stopped):
                        raise self._explained(error, relay_log.state.end) from None
        finally:
            relay_log.close()

    def _follow(self, relay_log: RelayLog) -> None:
        self._check_reset(relay_log.state.end)
        dump = BinlogDump(self._options, relay_log.state.end)
        # Before it looks whether it is stopped: `close` does the opposite.
        self._dump = dump
        relay_log.connect(dump.track, self._options)
        checked = time.monotonic()
        try:
            while not self._stopped.is_set():
                block = dump.block()
                self._received = True
                while not self._joining.empty():
                    relay_log.follow(self._joining.get())
                relay_log.keep(block)
                if self._waits_until is not None and self._waits_until <= relay_log.state.end:
                    self._waits_until = None
                self._ready.set()
                self._clean_up(relay_log)
                self._wait_for_readers()
                if len(block) < _SMALL_BLOCK:
                    # Gathers small transactions, which then need one write.
                    self._stopped.wait(_GATHER_S)
                idle = HEADER.unpack_from(block)[1] in HEARTBEATS
                if idle and time.monotonic() - checked > _RESET_CHECK_S:
                    checked = time.monotonic()
                    self._check_reset(relay_log.state.end)
        finally:
            dump.close()

    def _explained(self, error: Exception, end: BinlogPosition) -> StreamhouseError:
        """The server's error in a readable form, or the error of a reset binlog."""
        explained = readable(error, self._options)
        if isinstance(explained, DataLossError):
            # After a reset of the binlog, the server reports a missing file or corrupt events.
            self._check_reset(end)
        return explained

    def _check_reset(self, end: BinlogPosition) -> None:
        current = self._server.position(self._session)
        if current < end:
            names = ", ".join(".".join(table) for table in self._tables)
            raise reset_error(self._options.address, current, end, names)

    def _clean_up(self, relay_log: RelayLog) -> None:
        now = time.monotonic()
        if now - self._cleaned > _CLEANUP_S:
            self._cleaned = now
            relay_log.heard()
            drop_old(self.folder, self._needed, self._most if self._waits_until is None else None)

    def _wait_for_readers(self) -> None:
        """Wait while the log has more than `most_bytes` that a reader needs."""
        now = time.monotonic()
        if self._waits_until is None or now - self._measured < _FULL_S:
            return
        self._measured = now
        while not self._stopped.is_set() and held_bytes(self.folder) > self._most:
            drop_old(self.folder, self._needed, None)
            self._stopped.wait(_FULL_S)


def relay_startup(
    session: Session,
    server: Server,
    resume_positions: Sequence[BinlogPosition | None],
    most_bytes: int,
) -> tuple[BinlogPosition, BinlogPosition | None]:
    """Start at the oldest of `resume_positions` with at most `most_bytes` of binlog after it.

    They are those of all queries; None: not known. If all are behind by more than `most_bytes`, but
    near each other, the log starts at the first of them: no query then waits long for another, and
    one connection reads for all tasks.

    Returns the position, and another one until which the log waits for its readers: from there on,
    it drops events if it gets too large. None: it may drop events from its start on.
    """
    current = server.position(session)
    sizes = dict(log_files(session))
    names = list(sizes)

    def between(start: BinlogPosition, end: BinlogPosition) -> int:
        files = names[names.index(start.file) : names.index(end.file)]
        return sum(sizes[file] for file in files) - start.pos + end.pos

    behind = sorted(at for at in resume_positions if at and at.file in sizes and at < current)
    if not behind:
        return current, None
    first = behind[0]
    if between(first, current) <= most_bytes:
        return first, None
    all_behind = len(behind) == len(resume_positions)
    if all_behind and between(first, behind[-1]) <= most_bytes:
        return first, current
    near = [at for at in behind if between(at, current) <= most_bytes]
    return near[0] if near else current, None


_LOGIN = attrgetter("hostname", "port", "username", "password", "tls", "server_ids")
"""What the options of two sources share that can read by one connection."""


@dataclass(frozen=True)
class _Resumed:
    """Where a source goes on at the start, whose last offset may be of another server."""

    source: SharingSource
    offset: Offset
    position: BinlogPosition | None
    gtids: str | None = None

    def now(self) -> BinlogPosition | None:
        """The position of the source now."""
        last = self.source.last_offset
        return self.position if last == self.offset else position_of(last)


class Relays:
    """Starts the relays of a pipeline, limits the size of their logs, and raises their errors.

    `tables_of`: finds the tables that a source reads, by its options and last offset.
    """

    def __init__(self, tables_of: Callable[[MySqlOptions, Offset], Sequence[TableNames]]) -> None:
        self._tables_of = tables_of
        self._running: list[tuple[Relay, Sequence[_Resumed]]] = []

    def start(self, sources: Sequence[SharingSource]) -> None:
        """Start a relay for each MySQL server of `sources`, and let the sources use it."""
        groups: dict[tuple[object, ...], list[tuple[SharingSource, MySqlOptions]]] = {}
        for source in sources:
            assert source.source_spec is not None
            options = parse(source.source_spec.options)
            if options.relay_bytes and options.startup_mode != "snapshot":
                groups.setdefault(_LOGIN(options), []).append((source, options))
        for group in groups.values():
            self.start_relay(group)

    def step(self) -> None:
        """Raise the error of a relay, if any; let relays drop events that no query needs."""
        for relay, resumed in self._running:
            relay.check()
            known = [position for one in resumed if (position := one.now()) is not None]
            relay.needed_from(min(known) if len(known) == len(resumed) else None)

    def close(self) -> None:
        """Stop all relays and remove their logs."""
        relays, self._running = self._running, []
        for relay, _ in relays:
            relay.close()

    def follow(self, tables: Sequence[TableNames]) -> None:
        """Keep the changes of more tables, too, in events that arrive after this call."""
        for relay, _ in self._running:
            relay.follow(tables)

    def start_relay(self, sources: Sequence[tuple[SharingSource, MySqlOptions]]) -> None:
        """Start the relay of sources with their options, which name one server."""
        first, options = sources[0]
        resumes = all(source.last_offset for source, _ in sources)
        # One connection waits for the server; all others follow once it has succeeded.
        with closing(start_session(options, resumes)) as session:
            resumed = _resumed(session, sources)
        tables = dict.fromkeys(
            table for source, own in sources for table in self._tables_of(own, source.last_offset)
        )
        gtids = {one.position: one.gtids for one in resumed if one.position and one.gtids}
        root, held = first.checkpoint_path.parent / FOLDER, ExitStack()
        root.mkdir(parents=True, exist_ok=True)
        # Removed with the relay, or after this process has died.
        folder = Path(held.enter_context(work_folder("log-", str(root))))
        relay = Relay(
            options,
            list(tables),
            folder,
            [one.position for one in resumed],
            max(own.relay_bytes for _, own in sources),
            gtids,
            held,
        )
        self._running.append((relay, resumed))
        relay.start()
        for source, _ in sources:
            source.use_shared(folder)


def _resumed(
    session: Session, sources: Sequence[tuple[SharingSource, MySqlOptions]]
) -> list[_Resumed]:
    """Where the sources resume or begin."""
    options = sources[0][1]
    binlog = BinlogInspector(session, options, check_server(session, options))
    found = []
    for source, own in sources:
        last = source.last_offset
        position, state = _startup_position(last, own), from_json(BinlogState, last)
        moved = position_on_other_server(binlog, state, own.name)
        if moved is not None:
            position, state = moved
        found.append(_Resumed(source, last, position, state.gtids))
    return found


def _startup_position(offset: Offset, options: MySqlOptions) -> BinlogPosition | None:
    """Where a source resumes or begins; None if that is not known yet."""
    if offset:
        return position_of(offset)
    searched = options.startup_gtids is not None or options.skip_events or options.skip_rows
    if options.startup_mode == "specific-offset" and not searched:
        return options.startup_position
    if options.startup_mode == "earliest-offset":
        with closing(Session(options)) as session:
            return earliest_position(session)
    return None
