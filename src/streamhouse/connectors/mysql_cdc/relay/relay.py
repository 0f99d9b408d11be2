"""The one binlog reader of a pipeline: a thread that writes a relay log of its tables' changes.

docs/decisions/042-one-binlog-reader.md says why."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import pymysql

from streamhouse.connectors.mysql_cdc.binlog.dump import BinlogDump
from streamhouse.connectors.mysql_cdc.binlog.format.events import HEADER, HEARTBEATS
from streamhouse.connectors.mysql_cdc.binlog.limits import log_files, reset_error
from streamhouse.connectors.mysql_cdc.binlog.xa import read_prepared
from streamhouse.connectors.mysql_cdc.relay.files import drop_old, held_bytes
from streamhouse.connectors.mysql_cdc.relay.log import RelayLog
from streamhouse.errors import DataLossError, StreamhouseError
from streamhouse.mysql.connection import Backoff, Session, is_lost, readable
from streamhouse.mysql.metadata import TableNames
from streamhouse.mysql.options import MySqlOptions
from streamhouse.mysql.position import BinlogPosition
from streamhouse.mysql.table import Server, check_server
from streamhouse.work_folder import work_folder

log = logging.getLogger("streamhouse.mysql")

FOLDER = ".relay"
"""The folder of relay logs, beside the checkpoints of a pipeline's queries."""
MOST_BYTES = 256 * 1024 * 1024
_GATHER_S = 0.01
_SMALL_BLOCK = 64 * 1024
_RECONNECT_S = 300.0
_RESET_CHECK_S = 5.0
_CLEANUP_S = 1.0
_FULL_S = 0.1


class Relay:
    """Reads a server's binlog over one connection, and keeps the changes of `tables` in `folder`.

    `held`: what `close` closes, such as the `work_folder` that the folder is.

    It starts at the oldest of `resume_positions` after which the binlog has at most half of
    `most_bytes`, or else at the end of the binlog. Queries read older changes, and changes that the
    log has dropped because of `most_bytes`, over connections of their own. `gtids`: those before
    the positions for which they are known. `all_known`: `resume_positions` has the positions of all
    queries. If all of these are further behind, but near each other, the relay starts there, and
    waits for the queries until it has reached the current end of the binlog.

    It reconnects after a lost connection. If that fails for five minutes, or the server cannot
    continue from the log's end, `error` is set, once for all tables.
    """

    def __init__(
        self,
        options: MySqlOptions,
        tables: Sequence[TableNames],
        folder: Path,
        resume_positions: Sequence[BinlogPosition] = (),
        most_bytes: int = MOST_BYTES,
        all_known: bool = False,
        gtids: Mapping[BinlogPosition, str] | None = None,
        held: ExitStack | None = None,
    ) -> None:
        self._options = options
        self._tables = list(tables)
        self.folder, self._held = folder, held or ExitStack()
        self._resume_positions = list(resume_positions)
        self._most = most_bytes
        self._all_known, self._gtids = all_known, gtids or {}
        self._waits_until: BinlogPosition | None = None
        self._log: RelayLog | None = None
        self._dump: BinlogDump | None = None
        self._followed = threading.Lock()
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
        with self._followed:
            if self._log is None:
                self._tables += tables
            else:
                self._log.follow(tables)

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
            self._session, self._server, self._resume_positions, self._most // 2, self._all_known
        )
        with self._followed:
            gtids = self._gtids.get(start)
            if gtids is None:
                gtids = self._server.gtids(self._session, start)
            relay_log = RelayLog(self.folder, self._tables, start, self._most, self._server, gtids)
            self._log = relay_log
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
        selects = relay_log.selects
        relay_log.connect(
            dump.track,
            f"MySQL at {self._options.address}",
            lambda committed, before: read_prepared(self._options, selects, committed, before),
        )
        checked = time.monotonic()
        try:
            while not self._stopped.is_set():
                block = dump.block()
                self._received = True
                relay_log.keep(block)
                if self._waits_until is not None and self._waits_until <= relay_log.state.end:
                    self._waits_until = None
                self._ready.set()
                self._clean_up()
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

    def _clean_up(self) -> None:
        now = time.monotonic()
        if now - self._cleaned > _CLEANUP_S:
            self._cleaned = now
            if self._log is not None:
                self._log.heard()
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


def own_folder(root: Path) -> tuple[Path, ExitStack]:
    """A new folder that is removed when the stack is closed, or after this process has died."""
    root.mkdir(parents=True, exist_ok=True)
    held = ExitStack()
    return Path(held.enter_context(work_folder("log-", str(root)))), held


def relay_startup(
    session: Session,
    server: Server,
    resume_positions: Sequence[BinlogPosition],
    most_bytes: int,
    all_known: bool = False,
) -> tuple[BinlogPosition, BinlogPosition | None]:
    """Start at the oldest of `resume_positions` with at most `most_bytes` of binlog after it.

    `all_known`: `resume_positions` has the positions of all queries.
    If all of these are behind by more than `most_bytes`, but near each other, the log starts at the
    first of them: no query then waits long for another, and one connection reads for all tasks.

    Returns the position, and another one until which the log waits for its readers: from there on,
    it drops events if it gets too large. None: it may drop events from its start on.
    """
    current = server.position(session)
    sizes = dict(log_files(session))
    names = list(sizes)

    def between(start: BinlogPosition, end: BinlogPosition) -> int:
        files = names[names.index(start.file) : names.index(end.file)]
        return sum(sizes[file] for file in files) - start.pos + end.pos

    behind = [at for at in sorted(resume_positions) if at.file in sizes and at < current]
    if not behind:
        return current, None
    first = behind[0]
    if between(first, current) <= most_bytes:
        return first, None
    together = all_known and len(behind) == len(resume_positions)
    if together and between(first, behind[-1]) <= most_bytes:
        return first, current
    near = [at for at in behind if between(at, current) <= most_bytes]
    return near[0] if near else current, None
