"""Connections to a MySQL server: readable errors, and retries while the server restarts."""

from __future__ import annotations

import ssl
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import pymysql
from pymysql.constants import CR, ER
from pymysql.converters import encoders

from streamhouse.errors import AlteredTableError, ConnectError, DataLossError, StreamhouseError
from streamhouse.mysql.options import MySqlOptions
from streamhouse.mysql.position import START_AGAIN
from streamhouse.mysql.tls import Tls, handshake_reason, is_interrupted

_T = TypeVar("_T")
_FIRST_DELAY = 0.1
_LONGEST_DELAY = 5.0
_RESTART_SECONDS = 300.0
_START_SECONDS = 180.0
FIRST_START_SECONDS = 5.0
"""For how long a query that has never run waits for its server: the address may be wrong."""
_QUIET_SECONDS = 5.0
_PROGRESS_SECONDS = 15.0
_READ_SECONDS = 600

LOST = frozenset(
    {
        0,
        CR.CR_SERVER_GONE_ERROR,
        CR.CR_SERVER_LOST,
        CR.CR_CONN_HOST_ERROR,
        CR.CR_CONNECTION_ERROR,
        ER.SERVER_SHUTDOWN,
        ER.NORMAL_SHUTDOWN,
        1927,  # MariaDB: the connection was killed
    }
)
"""Error codes after which a new connection may succeed."""

_LOGIN = frozenset({ER.ACCESS_DENIED_ERROR, 1698, 1130, 2059})
_GRANTS = frozenset({ER.SPECIFIC_ACCESS_DENIED_ERROR, ER.TABLEACCESS_DENIED_ERROR, 1143, 1370})
_ALTERED = frozenset(
    {
        ER.BAD_DB_ERROR,
        ER.NO_SUCH_TABLE,
        ER.BAD_FIELD_ERROR,
        ER.KEY_DOES_NOT_EXITS,
        ER.TABLE_DEF_CHANGED,
        ER.WRONG_OBJECT,
    }
)
_BINLOG_FATAL = 1236
_INSECURE_TRANSPORT = 3159
_ENCODERS_ONLY: Any = dict(encoders)


def code_of(error: BaseException) -> int:
    """The server's or client's error number; 0 for a connection that was lost without one."""
    return error.args[0] if error.args and isinstance(error.args[0], int) else 0


def is_lost(error: BaseException) -> bool:
    """Whether the connection is lost, so that a new one may succeed."""
    if isinstance(error, pymysql.err.InterfaceError | OSError):
        return True
    return isinstance(error, pymysql.err.OperationalError) and code_of(error) in LOST


def open_connection(options: MySqlOptions, **settings: Any) -> pymysql.Connection[Any]:
    """Open a connection with additional PyMySQL settings, encrypted as `options.tls` says."""
    merged: dict[str, Any] = {
        "host": options.hostname,
        "port": options.port,
        "user": options.username,
        "password": options.password,
        "charset": "utf8mb4",
        "connect_timeout": max(1, options.connect_timeout_ms // 1000),
    } | settings
    tls = options.tls
    try:
        return _opened(merged, tls)
    except pymysql.err.OperationalError as error:
        failed = getattr(error, "original_exception", None)
        if isinstance(failed, ssl.SSLError) and not is_interrupted(failed):
            raise _tls_error(handshake_reason(failed, options.hostname)) from None
        if code_of(error) == CR.CR_SSL_CONNECTION_ERROR:
            raise _tls_error(
                f"the server offers no TLS, but 'ssl.mode' is '{tls.mode}'; configure its "
                "ssl-cert and ssl-key, or change the mode"
            ) from None
        if code_of(error) in _LOGIN and not tls.required and _logs_in_by_tls(merged, tls):
            raise _tls_error(
                f"the server requires TLS of user '{options.username}'; set 'ssl.mode' to "
                "'required', or to 'verify-identity' with 'ssl.ca'"
            ) from None
        if tls.cert is not None and is_lost(error):
            reason = _refused_certificate(merged, tls)
            if reason is not None:
                raise _tls_error(handshake_reason(reason, options.hostname)) from None
        raise


def _opened(settings: Mapping[str, Any], tls: Tls) -> pymysql.Connection[Any]:
    merged = dict(settings)
    if tls.required:
        merged["ssl"] = tls.context()
    else:
        merged["ssl_disabled"] = True
    connection: Any = pymysql.connect(**merged, defer_connect=True)
    if tls.mode == "preferred":
        # PyMySQL does this by default, too, but loads all CA certificates of the machine: 40 ms.
        connection.ssl, connection.ctx = True, tls.context()
    connection.connect()
    typed: pymysql.Connection[Any] = connection
    return typed


def _logs_in_by_tls(settings: Mapping[str, Any], tls: Tls) -> bool:
    """Whether a login that was refused succeeds with TLS: the server's error is the same."""
    if tls.mode != "disabled":
        return False
    try:
        connection = _opened(settings, Tls("required"))
    except (pymysql.err.MySQLError, OSError):
        return False
    close_quietly(connection)
    return True


def _refused_certificate(settings: Mapping[str, Any], tls: Tls) -> ssl.SSLError | None:
    """The server's refusal of the client certificate, if that is why the connection was lost.

    In TLS 1.3 the refusal follows the handshake, and is lost with the connection.
    """
    context = tls.context()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    try:
        connection: Any = pymysql.connect(**{**settings, "ssl": context})
    except pymysql.err.OperationalError as error:
        failed = getattr(error, "original_exception", None)
        refused = isinstance(failed, ssl.SSLError) and not is_interrupted(failed)
        return failed if refused else None
    close_quietly(connection)
    return None


def _tls_error(reason: str) -> pymysql.err.OperationalError:
    return pymysql.err.OperationalError(CR.CR_SSL_CONNECTION_ERROR, reason)


def connect(options: MySqlOptions) -> pymysql.Connection[Any]:
    """Open a connection, in UTC and UTF-8, with a fixed SQL mode; does not retry.

    Values are text or bytes, as the server sends them. The SQL mode allows any date that a table
    may have: a key is compared with literals such as '0000-00-00' and '2023-02-31'.
    """
    return open_connection(
        options,
        autocommit=True,
        conv=_ENCODERS_ONLY,
        read_timeout=_READ_SECONDS,
        init_command="SET time_zone = '+00:00', sql_mode = 'ALLOW_INVALID_DATES', "
        "net_write_timeout = 600",
    )


def readable(error: Exception, options: MySqlOptions) -> StreamhouseError:
    """The error in a form that a user can act upon; it never contains the password."""
    code = code_of(error)
    reason = str(error.args[1]) if len(error.args) > 1 else str(error) or type(error).__name__
    if code == CR.CR_SSL_CONNECTION_ERROR:
        return ConnectError(f"MySQL at {options.address}: {reason}")
    if code == _INSECURE_TRANSPORT or "require_secure_transport" in reason:
        return ConnectError(
            f"MySQL at {options.address} requires TLS (require_secure_transport is ON); set "
            "'ssl.mode' to 'required', or to 'verify-identity' with 'ssl.ca'"
        )
    if code in _LOGIN:
        return ConnectError(
            f"MySQL at {options.address} refuses the login of user '{options.username}'; "
            "check the options 'username' and 'password', and the hosts that the user may "
            f"connect from{_certificate_hint(options.tls)}"
        )
    if code == ER.DBACCESS_DENIED_ERROR or code in _GRANTS:
        return ConnectError(grants_message(options, reason))
    if code in _ALTERED:
        return AlteredTableError(f"MySQL at {options.address}: {reason}")
    if code == _BINLOG_FATAL:
        return DataLossError(
            f"MySQL at {options.address} no longer has the binlog needed for {options.name} "
            f"({reason}); {START_AGAIN}, and keep binlogs longer "
            "(expire_logs_days, binlog_expire_logs_seconds)"
        )
    if is_lost(error):
        return ConnectError(
            f"MySQL at {options.address} cannot be reached ({reason}); "
            f"check {options.where}, and that the server is running"
        )
    return ConnectError(f"MySQL at {options.address} failed: {reason} (error {code})")


def _certificate_hint(tls: Tls) -> str:
    """A client certificate that the account may require; the error is that of a wrong password."""
    if tls.cert is not None:
        return (
            "; if the user requires another client certificate (REQUIRE SUBJECT or ISSUER), "
            "change 'ssl.cert' and 'ssl.key'"
        )
    return (
        "; if the user requires a client certificate (REQUIRE X509, SUBJECT or ISSUER), set "
        "'ssl.cert' and 'ssl.key'"
    )


def grants_message(options: MySqlOptions, reason: str) -> str:
    """A message with the missing privilege and the GRANT statement to run."""
    return (
        f"MySQL at {options.address}: user '{options.username}' lacks a privilege ({reason}); run "
        f"GRANT {options.privileges} TO '{options.username}'"
    )


class Backoff:
    """Waits between attempts to reach a server, ever longer; reports long waits on stderr.

    `seconds`: for how long in all, default: five minutes; `retries`: how often at most.
    """

    def __init__(
        self, options: MySqlOptions, seconds: float | None = None, retries: int | None = None
    ) -> None:
        self._options = options
        self._seconds = _RESTART_SECONDS if seconds is None else seconds
        self._retries = retries
        self._begun: float | None = None
        self._reported = 0.0
        self._delay = _FIRST_DELAY

    def wait(self, error: Exception, stop: threading.Event | None = None) -> bool:
        """Wait before the next attempt, or until `stop`; returns False to give up."""
        now = time.monotonic()
        if self._begun is None:
            self._begun, self._reported = now, now - _PROGRESS_SECONDS + _QUIET_SECONDS
        remaining = self._begun + self._seconds - now
        if self._retries is not None:
            self._retries -= 1
            if self._retries < 0:
                return False
        elif remaining <= 0:
            return False
        if now - self._reported >= _PROGRESS_SECONDS:
            self._reported = now
            until = f"{remaining:.0f} s" if self._retries is None else f"{self._retries + 1} times"
            reason = error.args[1] if len(error.args) > 1 else error
            print(
                f"MySQL at {self._options.address} cannot be reached ({reason}); "
                f"trying again for up to {until}",
                file=sys.stderr,
                flush=True,
            )
        time.sleep(self._delay) if stop is None else stop.wait(self._delay)
        self._delay = min(2 * self._delay, _LONGEST_DELAY)
        return True

    def retry(self, error: Exception, *codes: int) -> None:
        """Wait before the next attempt after a lost connection, or after an error of these codes.

        Raises other errors, and after the last attempt any, in a readable form.
        """
        if not (is_lost(error) or code_of(error) in codes) or not self.wait(error):
            raise readable(error, self._options) from None


def retried(
    options: MySqlOptions, action: Callable[[], _T], lost: Callable[[], None] = lambda: None
) -> _T:
    """The result of a read-only action, which is done again after a lost connection.

    `lost` closes what the action has opened. Raises other errors in a readable form.
    """
    backoff = Backoff(options)
    while True:
        try:
            return action()
        except (pymysql.err.MySQLError, OSError) as error:
            lost()
            backoff.retry(error)


class Session:
    """One long-lived connection for queries, which reconnects when it is lost.

    The first connection is retried for `start_s` seconds, or `connect.max-retries` times if that is
    set. Once it has succeeded, a statement is retried for five minutes before `ConnectError` is
    raised. `connections`: how many were opened; each may be to another server.
    """

    def __init__(self, options: MySqlOptions, start_s: float = _START_SECONDS) -> None:
        self._options, self._start_s = options, start_s
        self._connection: pymysql.Connection[Any] | None = None
        self.connections = 0

    def rows(
        self, statement: str | bytes, arguments: Sequence[Any] = (), raw: bool = False
    ) -> list[tuple[Any, ...]]:
        """All rows of a read-only statement, as text, bytes and None; `raw`: see `run_raw`."""
        first = (self._start_s, self._options.connect_retries)
        backoff = Backoff(self._options, *(() if self.connections else first))
        while True:
            try:
                return (run_raw if raw else run)(self._connected(), statement, arguments)
            except (pymysql.err.MySQLError, OSError) as error:
                if is_lost(error):
                    self.close()
                backoff.retry(error)

    def close(self) -> None:
        connection, self._connection = self._connection, None
        close_quietly(connection)

    def _connected(self) -> pymysql.Connection[Any]:
        if self._connection is None:
            self._connection = connect(self._options)
            self.connections += 1
        return self._connection


def global_variables(session: Session, *names: str) -> dict[str, str]:
    """The values of these global variables, as far as the server has them."""
    quoted = ", ".join(f"'{name}'" for name in names)
    rows = session.rows(f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({quoted})")
    return {str(name).lower(): str(value) for name, value in rows}


def start_session(options: MySqlOptions, resumes: bool) -> Session:
    """A session that has connected; a query that `resumes` waits longer for its server."""
    session = Session(options, _START_SECONDS if resumes else FIRST_START_SECONDS)
    session.rows("SELECT 1")
    return session


def run(
    connection: pymysql.Connection[Any], statement: str | bytes, arguments: Sequence[Any] = ()
) -> list[tuple[Any, ...]]:
    """All rows of a statement on this connection; bytes are sent as they are."""
    with connection.cursor() as cursor:
        untyped: Any = cursor
        untyped.execute(statement, arguments or None)
        return list(cursor.fetchall())


def run_raw(
    connection: pymysql.Connection[Any], statement: str | bytes, arguments: Sequence[Any] = ()
) -> list[tuple[Any, ...]]:
    """All rows of a statement, their values as the bytes that the server sends.

    A column of text can contain what Python's UTF-8 refuses.
    """
    connection.use_unicode = False
    try:
        return run(connection, statement, arguments)
    finally:
        connection.use_unicode = True


def close_quietly(connection: pymysql.Connection[Any] | None) -> None:
    """Close a connection that may be lost already, if there is one; does not notify the server."""
    if connection is not None:
        connection._force_close()  # type: ignore[attr-defined]
