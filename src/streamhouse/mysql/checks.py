"""Checks all requirements of change data capture, of a server and its tables."""

import re
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

from streamhouse.errors import ConnectError, StreamhouseError
from streamhouse.mysql.columns import check_followable, selected_columns
from streamhouse.mysql.connection import Session, global_variables
from streamhouse.mysql.options import MySqlOptions
from streamhouse.mysql.pending_commits import (
    REPORT_COMMITS,
    commit_locks,
    unreported_delay,
    unreported_message,
)
from streamhouse.mysql.requirements import VARIABLES, Requirement, account, server_requirements
from streamhouse.mysql.table import SYSTEM_DATABASES, check_server, load_table
from streamhouse.mysql.table_lock import check_lockable
from streamhouse.mysql.values.types import UTC_NAMES, quote

_EXPIRY = ("binlog_expire_logs_seconds", "expire_logs_days")
_SHORT_EXPIRY_S = 24 * 3600
_DAY_S = 86_400
_GRANT = re.compile(r"GRANT (.+?) ON (\S+) TO ", re.IGNORECASE)
_READS = re.compile(r"\bSELECT\b|\bALL PRIVILEGES\b", re.IGNORECASE)
_TABLES = """
SELECT table_schema, table_name FROM information_schema.tables
WHERE table_type IN ('BASE TABLE', 'SYSTEM VERSIONED') AND table_schema = %s ORDER BY table_name
"""


@dataclass(frozen=True)
class Checked:
    """A server's version, and its requirements."""

    address: str
    version: str
    requirements: tuple[Requirement, ...]

    @property
    def ok(self) -> bool:
        return all(requirement.status != "missing" for requirement in self.requirements)


def check(options: MySqlOptions, databases: Sequence[str], tables: Sequence[str]) -> Checked:
    """Check a server, and the tables named `database.table`, or else all of `databases`.

    `options`: of any table. Reports what is missing, even a connection, and does not raise.
    """
    with closing(Session(options)) as session:
        try:
            version = str(session.rows("SELECT VERSION()")[0][0])
            cipher = session.rows("SHOW SESSION STATUS LIKE 'Ssl_cipher'")[0][1]
        except StreamhouseError as error:
            missing = Requirement("connection", "missing", "failed", str(error), str(error))
            return Checked(options.address, "", (missing,))
        encryption = f"encrypted by {cipher}" if cipher else "not encrypted"
        found = [Requirement("connection", "ok", encryption)]
        found += server_requirements(session, options, global_variables(session, *VARIABLES))
        found.append(_select(session))
        found += _advice(session, options, version)
        if all(result.status != "missing" for result in found):
            found += _tables(session, options, databases, tables)
        elif databases or tables:
            found.append(
                Requirement("tables", "info", "not checked: fix what is missing above first")
            )
        return Checked(options.address, version, tuple(found))


def _select(session: Session) -> Requirement:
    """Whether the user may read any table at all."""
    grants = [str(row[0]) for row in session.rows("SHOW GRANTS")]
    matches = [match for grant in grants if (match := _GRANT.match(grant)) is not None]
    places = [match[2] for match in matches if _READS.search(match[1])]
    if "*.*" in places:
        return Requirement("SELECT", "ok", "granted")
    if places:
        return Requirement("SELECT", "ok", f"granted on {', '.join(places)}")
    if len(matches) < len(grants):
        return Requirement("SELECT", "info", "perhaps by the user's role")
    fix = f"GRANT SELECT ON *.* TO {account(session)}, or only on the databases to follow"
    return Requirement("SELECT", "missing", "not granted", "SELECT is not granted", fix)


def _prepared_transactions(session: Session) -> Requirement:
    """Whether the user may list prepared XA transactions, which a start then checks."""
    name = "XA_RECOVER_ADMIN"
    try:
        session.rows("XA RECOVER")
    except ConnectError:
        fix = f"GRANT {name} ON *.* TO {account(session)}: then a start checks that the binlog has "
        return Requirement(name, "info", "not granted", fix=f"{fix}prepared XA transactions")
    return Requirement(name, "ok", "granted")


def _gtid_mode(session: Session, options: MySqlOptions, value: str) -> Requirement:
    """Whether snapshots can wait for the commits that are logged and not visible yet."""
    if value.upper() == "ON" or commit_locks(session) is not None:
        return Requirement("gtid_mode", "info", value)
    if unreported_delay(session) is None:
        error = unreported_message(options)
        return Requirement("gtid_mode", "missing", value, error, error)
    fix = f"set gtid_mode = ON, or {REPORT_COMMITS}: then snapshots wait for slow commits"
    return Requirement("gtid_mode", "info", value, fix=fix)


def _advice(session: Session, options: MySqlOptions, version: str) -> Iterator[Requirement]:
    """Settings that no query requires."""
    values = global_variables(
        session, *_EXPIRY, "binlog_row_metadata", "binlog_row_value_options", "server_id",
        "gtid_mode", "log_slave_updates", "log_replica_updates", "lower_case_table_names",
    )  # fmt: skip
    metadata = values.get("binlog_row_metadata", "not known to this server")
    fix = "" if metadata == "FULL" else "SET GLOBAL binlog_row_metadata = FULL: then the binlog "
    fix = fix and fix + "names columns, which streams that begin in the past need after ALTER TABLE"
    yield Requirement("binlog_row_metadata", "info" if fix else "ok", metadata, fix=fix)
    if values.get("binlog_row_value_options"):
        yield Requirement(
            "binlog_row_value_options", "info", values["binlog_row_value_options"],
            fix="SET GLOBAL binlog_row_value_options = '': partial updates of JSON cannot be read",
        )  # fmt: skip
    yield from _expiry(values)
    yield Requirement("server_id", "ok", values.get("server_id", ""))
    if "mariadb" in version.lower():
        yield Requirement("gtid_mode", "info", "always")
    else:
        yield _gtid_mode(session, options, values.get("gtid_mode", "OFF"))
        yield _prepared_transactions(session)
    for name in ("log_slave_updates", "log_replica_updates"):
        if values.get(name, "ON").upper() not in ("ON", "1"):
            fix = (
                f"if this server is a replica, set {name} = ON: it does not log what it replicates"
            )
            yield Requirement(name, "info", values[name], fix=fix)
    if "lower_case_table_names" in values:
        yield Requirement("lower_case_table_names", "info", values["lower_case_table_names"])
    yield _time_zone(session)


def _expiry(values: dict[str, str]) -> Iterator[Requirement]:
    seconds = float(values.get(_EXPIRY[0]) or 0)
    seconds = seconds or float(values.get(_EXPIRY[1]) or 0) * _DAY_S
    value = f"after {seconds / 3600:,.0f} h" if seconds else "never"
    fix = ""
    if seconds and seconds < _SHORT_EXPIRY_S:
        fix = "keep binlogs for longer than queries may be stopped, such as SET GLOBAL "
        fix += "binlog_expire_logs_seconds = 604800 (or expire_logs_days = 7)"
    yield Requirement("binlog expiry", "info" if fix else "ok", value, fix=fix)


def _time_zone(session: Session) -> Requirement:
    zone, system = (str(value) for value in session.rows(
        "SELECT @@global.time_zone, @@system_time_zone")[0])  # fmt: skip
    name = system if zone == "SYSTEM" else zone
    if name in UTC_NAMES or name[:1] in "+-":
        return Requirement("time zone", "ok", name)
    fix = "set 'server-time-zone' if DATETIME is declared as TIMESTAMP_LTZ, or the reverse"
    return Requirement("time zone", "info", name, fix=fix)


def _tables(
    session: Session, options: MySqlOptions, databases: Sequence[str], tables: Sequence[str]
) -> Iterator[Requirement]:
    names = [(database, table) for database, _, table in (name.partition(".") for name in tables)]
    if not tables:
        for database in databases:
            found = session.rows(_TABLES, (database,))
            names += [(str(schema), str(table)) for schema, table in found]
            if not found and database not in SYSTEM_DATABASES:
                value = f"no table that user '{options.username}' can see"
                fix = f"GRANT SELECT ON {quote(database)}.* TO {account(session)}"
                yield Requirement(f"database {database}", "missing", value, value, fix)
    for database, table in names:
        yield _table(session, options, database, table)


def _table(session: Session, options: MySqlOptions, database: str, table: str) -> Requirement:
    options = options.of(database, table)
    name = f"table {database}.{table}"
    try:
        server = check_server(session, options)
        definition = load_table(session, options)
        if not definition.key:
            check_lockable(options, definition)
        selected_columns(options, definition.columns, None, definition.key)
        check_followable(session, server, options, definition, definition.columns)
    except StreamhouseError as error:
        return Requirement(name, "missing", "cannot be followed", str(error), str(error))
    try:
        session.rows(f"SELECT 1 FROM {quote(database)}.{quote(table)} LIMIT 0")
    except ConnectError as error:
        fix = f"GRANT SELECT ON {quote(database)}.{quote(table)} TO {account(session)}"
        return Requirement(name, "missing", "cannot be read", str(error), fix)
    key = ", ".join(column.name for column in definition.key)
    return Requirement(name, "ok", f"key: {key}" if key else "no key; LOCK TABLES is granted")
