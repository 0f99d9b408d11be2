"""Commits that MySQL's binlog has and that SELECTs do not see yet.

A commit is visible shortly after it is logged, or, with semi-synchronous replication, once a
replica has acknowledged it. See docs/decisions/001-mysql-chunks.md.
"""

import time

from streamhouse.errors import ConnectError
from streamhouse.mysql.connection import Session, global_variables
from streamhouse.mysql.gtids import owned_gtids
from streamhouse.mysql.options import MySqlOptions
from streamhouse.mysql.position import BinlogPosition

_GRACE_SECONDS = 1.0
_POLL_SECONDS = 0.005
_COUNTED_SECONDS = 1.0
_SEMI_SYNC = ("rpl_semi_sync_source", "rpl_semi_sync_master")
"""The prefixes of the plug-in's variables: of version 8.0.26 and later, and of earlier ones."""
_DELAY = "binlog_group_commit_sync_delay"
_LOCKS = """
SELECT object_type, owner_thread_id, owner_event_id, object_instance_begin
FROM performance_schema.metadata_locks
WHERE lock_status = 'GRANTED' AND (object_type = 'COMMIT'
  OR object_schema = 'performance_schema' AND object_name = 'metadata_locks')
"""
_LOST_LOCKS = "SHOW GLOBAL STATUS LIKE 'Performance_schema_metadata_lock_lost'"


def await_commits(
    session: Session, options: MySqlOptions, position: BinlogPosition, deadline: float
) -> None:
    """Wait until SELECTs see all commits that the binlog had at a position in the past.

    Raises `ConnectError` after the `deadline`, of the monotonic clock, or if the server reports to
    the user neither which commits are pending nor that they are so only briefly.
    """
    pending_of = _owned_gtids if uses_gtids(session) else commit_locks
    pending = pending_of(session)
    while pending:
        if time.monotonic() > deadline:
            raise ConnectError(
                f"MySQL at {options.address} does not show tables as of {position} yet: a commit "
                f"hangs on the server ({', '.join(sorted(pending))})"
            )
        time.sleep(_POLL_SECONDS)
        now = pending_of(session)
        pending = None if now is None else pending & now
    if pending is None:
        seconds = unreported_delay(session)
        if seconds is None:
            raise ConnectError(unreported_message(options))
        time.sleep(seconds)


def uses_gtids(session: Session) -> bool:
    """Whether each transaction of MySQL has a GTID."""
    return str(session.rows("SELECT @@GLOBAL.gtid_mode")[0][0]).upper() == "ON"


def commit_locks(session: Session) -> set[str] | None:
    """The metadata locks that commits hold from before they are logged until SELECTs see them.

    None if the server does not record all of them, or not for this user.
    """
    try:
        rows = session.rows(_LOCKS)
    except ConnectError:
        return None
    locks = {f"lock {where} of thread {thread} at event {event}"
             for kind, thread, event, where in rows if kind == "COMMIT"}  # fmt: skip
    # The SELECT itself holds the other one.
    if len(locks) == len(rows) or int(session.rows(_LOST_LOCKS)[0][1]) > 0:
        return None
    return locks


def unreported_delay(session: Session) -> float | None:
    """For how long, in seconds, a commit is pending at most; None: until a replica answers."""
    names = [f"{prefix}_{name}" for prefix in _SEMI_SYNC for name in ("enabled", "wait_point")]
    values = global_variables(session, *names, _DELAY)
    for prefix in _SEMI_SYNC:
        waits = values.get(f"{prefix}_enabled", "").upper() in ("ON", "1")
        if waits and values.get(f"{prefix}_wait_point", "").upper() != "AFTER_COMMIT":
            return None
    return _GRACE_SECONDS + float(values.get(_DELAY, 0)) / 1e6


def counts_commits(session: Session) -> bool:
    """Wait until `gtid_executed` has all commits that the binlog had before; False if it may not.

    MySQL logs a commit before it adds its GTID to that set, with semi-synchronous replication
    long before. A session may also own a GTID (`gtid_next`) for as long as its transaction lasts.
    """
    if not uses_gtids(session):
        return False
    deadline = time.monotonic() + _COUNTED_SECONDS
    pending = _owned_gtids(session)
    while pending and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
        pending &= _owned_gtids(session)
    return not pending


def _owned_gtids(session: Session) -> set[str]:
    return owned_gtids(str(session.rows("SELECT @@GLOBAL.gtid_owned")[0][0]))


def unreported_message(options: MySqlOptions) -> str:
    """The error about snapshots of a server that reports no pending commits."""
    return (
        f"MySQL at {options.address} replicates semi-synchronously without GTIDs, and does not "
        f"report to user '{options.username}' which commits wait for a replica, so a snapshot "
        f"could miss them; set gtid_mode = ON, or {REPORT_COMMITS}"
    )


REPORT_COMMITS = (
    "set performance_schema = ON, enable its instrument wait/lock/metadata/sql/mdl, and grant "
    "SELECT on performance_schema.metadata_locks"
)
"""How a server reports which commits are pending; for messages."""
