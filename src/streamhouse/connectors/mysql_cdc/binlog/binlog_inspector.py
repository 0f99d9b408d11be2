"""Inspects the server's binlog at a position: its identity, and XA transactions; driver only."""

import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace

from streamhouse.connectors.mysql_cdc.binlog.dump import (
    BinlogDump,
    log_files,
    purged_file_error,
    reset_error,
)
from streamhouse.connectors.mysql_cdc.binlog.transactions import other_binlog
from streamhouse.connectors.mysql_cdc.binlog.xa import (
    XaScan,
    prepared_before,
    prepared_xids,
    xid_sql,
)
from streamhouse.errors import ConnectError, DataLossError
from streamhouse.mysql.connection import Session, retried
from streamhouse.mysql.options import MySqlOptions
from streamhouse.mysql.position import (
    BINLOG_START,
    BinlogIdentity,
    BinlogPosition,
    BinlogState,
    Prepared,
)
from streamhouse.mysql.table import Server

_UNDECIDED_SECONDS = 30.0
_VISIBLE_SECONDS = 30.0


class BinlogInspector:
    """Determines the state of the binlog at positions, and checks it when a stream resumes.

    It opens a short binlog connection for each file, and again for each new connection of
    `session`. While the server lists prepared XA transactions, it keeps a binlog connection that
    follows them. Driver only.
    """

    def __init__(self, session: Session, options: MySqlOptions, server: Server) -> None:
        self.session = session
        self.options = options
        self.server = server
        self._identities: dict[str, BinlogIdentity] = {}
        self._connections = 0
        self._scan: XaScan | None = None

    def check(self, position: BinlogPosition, expected: BinlogIdentity | None) -> None:
        """Raise `DataLossError` if the server's binlog lacks a position of an offset.

        `expected`: the identity of the file there; None: any.
        """
        current = self.server.position(self.session)
        if current < position:
            raise reset_error(self.options.address, current, position)
        if position.file not in self._current_identities():
            files = [name for name, _ in log_files(self.session)]
            if position.file not in files:
                raise purged_file_error(self.options.name, position.file, files)
        if expected is None:
            return
        found = self.identity(position.file)
        if found != expected:
            raise other_binlog(f"MySQL at {self.options.address}", position.file, expected, found)

    def identity(self, file: str) -> BinlogIdentity:
        """When and by which server a binlog file was created."""
        known = self._current_identities()
        if file not in known:
            found = retried(self.options, lambda: _identity(self.options, file))
            if file == log_files(self.session)[0][0]:
                # Until a second has passed, a reset would give the same creation time.
                while int(self.session.rows("SELECT UNIX_TIMESTAMP()")[0][0]) <= found.created:
                    time.sleep(0.05)
            known[file] = found
        return known[file]

    def state_at(self, position: BinlogPosition) -> BinlogState:
        """The state at a position, without `skip`."""
        gtids = self.server.gtids(self.session, position)
        prepared = self._prepared_at(position)[0]
        return BinlogState(self.identity(position.file), prepared, gtids=gtids)

    def completed(self, state: BinlogState, position: BinlogPosition) -> BinlogState:
        """The state of a relay log at a position, with the GTIDs there.

        It has no prepared transactions that the server no longer lists.
        """
        if state.gtids is None:
            state = replace(state, gtids=self.server.gtids(self.session, position))
        if not state.prepared:
            return state
        names = prepared_xids(self.session, self.server.mariadb)
        prepared = {xid: at for xid, at in state.prepared.items() if xid in names}
        return replace(state, prepared=prepared)

    def snapshot_position(
        self, current: Callable[[], BinlogPosition]
    ) -> tuple[BinlogPosition, BinlogState]:
        """A recent position as of which SELECTs can read tables, and the state there.

        An XA COMMIT is in the binlog shortly before a SELECT sees it. The server lists the
        transaction as prepared until then, so this waits for those that the binlog has committed.
        """
        deadline = time.monotonic() + _VISIBLE_SECONDS
        position = current()
        prepared, pending = self._prepared_at(position)
        while pending:
            if time.monotonic() > deadline:
                raise ConnectError(
                    f"MySQL at {self.options.address} lists the XA transaction "
                    f"{xid_sql(min(pending))} as prepared, but its binlog says that it ended: a "
                    "commit hangs on the server, or it was prepared again without changes; end it "
                    f"with XA COMMIT or XA ROLLBACK {xid_sql(min(pending))}"
                )
            time.sleep(0.005)
            # Busy servers always have some: only those before the position matter.
            pending &= self._prepared_at(current())[1]
        gtids = self.server.gtids(self.session, position)
        return position, BinlogState(self.identity(position.file), prepared, gtids=gtids)

    def check_prepared(self, position: BinlogPosition) -> None:
        """Raise `DataLossError` if the binlog lacks a transaction that is prepared now.

        Called when a stream begins. A prepared transaction without changes is not in the binlog,
        either, so this waits half a minute for its end. Transactions that are prepared meanwhile
        have no changes if they are not in the binlog.
        """
        deadline = time.monotonic() + _UNDECIDED_SECONDS
        unknown = self._not_in_binlog(position)
        while unknown:
            if time.monotonic() > deadline:
                raise DataLossError(
                    f"the XA transaction {xid_sql(min(unknown))} is prepared on MySQL at "
                    f"{self.options.address}, but the server no longer has the binlog with its "
                    f"changes, or it has none, so that {self.options.name} cannot be followed; "
                    f"end it with XA COMMIT or XA ROLLBACK {xid_sql(min(unknown))}, and start again"
                )
            time.sleep(0.2)
            unknown &= self._not_in_binlog(position)

    def close(self) -> None:
        if self._scan is not None:
            self._scan.close()
            self._scan = None

    def _not_in_binlog(self, position: BinlogPosition) -> set[str]:
        wanted = prepared_xids(self.session, self.server.mariadb)
        prepared, _ = self._prepared_at(position)
        wanted -= prepared.keys()
        if not wanted:
            return wanted
        now = self.server.position(self.session)
        found, decided = retried(
            self.options, lambda: prepared_before(self.session, self.options, now, wanted)
        )
        return wanted - found.keys() - decided.keys()

    def _current_identities(self) -> dict[str, BinlogIdentity]:
        if self._connections != self.session.connections:
            # A new connection may be to another server.
            self._identities = {}
            self._connections = self.session.connections
            self.close()
        return self._identities

    def _prepared_at(self, position: BinlogPosition) -> tuple[Prepared, set[str]]:
        """The transactions prepared at a position, and those whose commit is not visible yet.

        Transactions that the server does not list yet may be missing.
        """
        self._current_identities()
        names = prepared_xids(self.session, self.server.mariadb)
        if not names and self._scan is None:
            return {}, set()
        return retried(self.options, lambda: self._scanned(position, names))

    def _scanned(self, position: BinlogPosition, names: set[str]) -> tuple[Prepared, set[str]]:
        if self._scan is not None and position < self._scan.position:
            self.close()
        try:
            scan = self._scan = self._scan or XaScan(self.options, position)
            scan.advance(position)
        except BaseException:
            self.close()
            raise
        unknown = names - scan.prepared.keys() - scan.decided.keys()
        if unknown:
            found, decided = prepared_before(self.session, self.options, position, unknown)
            scan.prepared |= found
            scan.decided |= decided
        if not names:
            self.close()
        # A crash of the server can lose transactions that changed nothing in InnoDB.
        prepared = {xid: at for xid, at in scan.prepared.items() if xid in names}
        return prepared, names & scan.decided.keys()


def _identity(options: MySqlOptions, file: str) -> BinlogIdentity:
    with closing(BinlogDump(options, BinlogPosition(file, BINLOG_START))) as dump:
        for _ in dump.up_to(BinlogPosition(file, BINLOG_START + 1)):
            pass
        assert dump.track.binlog is not None
        return dump.track.binlog
