"""The requirements of change data capture on a server and its user, and how to meet them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from streamhouse.mysql.connection import Session, grants_message
from streamhouse.mysql.options import MySqlOptions

_NEEDED = {"log_bin": ("ON", "1"), "binlog_format": ("ROW",), "binlog_row_image": ("FULL",)}
_PRIVILEGES = {
    "REPLICATION SLAVE": "REPLICATION REPLICA",
    "REPLICATION CLIENT": "BINLOG MONITOR",
}
VARIABLES = (*_NEEDED, "lower_case_table_names", "binlog_row_metadata")
"""The server's variables that determine whether and how its binlog can be read."""


@dataclass(frozen=True)
class Requirement:
    """One requirement, and whether it is met.

    `value`: the server's value. `error`: the error of a query if it is missing. `fix`: what to run
    or to change then; for `info`, an improvement.
    """

    name: str
    status: Literal["ok", "missing", "info"]
    value: str
    error: str = ""
    fix: str = ""


def server_requirements(
    session: Session, options: MySqlOptions, variables: Mapping[str, str]
) -> Iterator[Requirement]:
    """The requirements of every server, in the order in which queries check them."""
    yield from _settings(options, variables)
    yield from _grants(session, options)


def _settings(options: MySqlOptions, variables: Mapping[str, str]) -> Iterator[Requirement]:
    for name, allowed in _NEEDED.items():
        value = variables.get(name, allowed[0])
        if value.upper() in allowed:
            yield Requirement(name, "ok", value)
            continue
        setting = f"{name.replace('_', '-')} = {allowed[0]}"
        error = (
            f"MySQL at {options.address}: {name} is {value}; change data capture needs "
            f"{setting} in the server's configuration"
        )
        fix = f"SET GLOBAL {name} = {allowed[0]}; set {setting} in the server's configuration, too"
        if name == "log_bin":
            fix = "set log-bin = binlog in the server's configuration, and restart it"
        yield Requirement(name, "missing", value, error, fix)


def _grants(session: Session, options: MySqlOptions) -> Iterator[Requirement]:
    grants = " ".join(str(row[0]).upper() for row in session.rows("SHOW GRANTS"))
    # The list lacks the privileges of roles: with a role, the server may refuse later.
    unknown = "SET DEFAULT ROLE" in grants
    everything = "ALL PRIVILEGES ON *.*" in grants
    words = grants.replace("REPLICATION SLAVE ADMIN", "")
    for privilege, alias in _PRIVILEGES.items():
        if everything or privilege in words or alias in words:
            yield Requirement(privilege, "ok", "granted")
        elif unknown:
            yield Requirement(privilege, "info", "perhaps by the user's role")
        else:
            error = grants_message(options, f"{privilege} is not granted")
            fix = f"GRANT {privilege} ON *.* TO {account(session)}"
            yield Requirement(privilege, "missing", "not granted", error, fix)


def account(session: Session) -> str:
    """The account of the session's user, quoted for GRANT."""
    user, _, host = str(session.rows("SELECT CURRENT_USER()")[0][0]).rpartition("@")
    return "@".join("'" + part.replace("'", "''") + "'" for part in (user, host))
