"""The options of a MySQL server and its tables, as Flink CDC names them for `mysql-cdc`.

Flink CDC passes all `debezium.*` on to Debezium and all `jdbc.properties.*` to MySQL's JDBC driver.
Here each of them has an effect (`KNOWN`), a reason why it has none, or an error.
"""

import random
import re
import zoneinfo
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self

from streamhouse.errors import OptionError
from streamhouse.mysql.gtids import parse_gtids
from streamhouse.mysql.position import BinlogPosition
from streamhouse.mysql.tls import OPTIONS as TLS_OPTIONS
from streamhouse.mysql.tls import Tls, parse_tls
from streamhouse.mysql.values.dates import OPTION as ZERO_DATES_OPTION
from streamhouse.mysql.values.dates import ZeroDates
from streamhouse.mysql.values.types import zone_offset
from streamhouse.options import (
    DeclaredOptions,
    OptionValues,
    by_key,
    integer,
    no_effect,
    of_option,
    required,
    table_of,
)

_SECURITY = re.compile(r"^jdbc.*(ssl|tls|certificate|keystore|truststore)", re.IGNORECASE)
DEBEZIUM = "debezium."
LOCK_TIMEOUT = "debezium.snapshot.lock.timeout.ms"
_OWN = frozenset({LOCK_TIMEOUT, ZERO_DATES_OPTION})
"""Options of Debezium and JDBC with an effect, besides those of TLS."""
_TLS = frozenset(option.key for option in TLS_OPTIONS)

_TABLE = table_of(__package__, "passthrough.toml")
WITHOUT_EFFECT = by_key(_TABLE["without_effect"])
"""Options of Flink CDC that have no effect here, and why; `*` stands for any ending."""
_REFUSED: Mapping[str, str] = _TABLE["refused"]
"""Options that change rows, values or the server: ignoring them would give other results.

A key that ends with a dot, or is followed by one, stands for all that begin so.
"""
WHERE = "mysql-cdc"
DECLARED = DeclaredOptions.of(__package__)
OPTIONS = (*DECLARED.options, *TLS_OPTIONS)
KNOWN = frozenset(option.key for option in OPTIONS)
"""Every option key that `mysql-cdc` understands."""
_SPECIFIC = "scan.startup.specific-offset"
_APPEND_ONLY = "scan.read-changelog-as-append-only.enabled"


def without_effect(key: str) -> str | None:
    """Why an option has no effect here; None if it has one, is unknown or is refused."""
    if key in _TLS or key in _OWN or _refused(key) is not None:
        return None
    if key not in WITHOUT_EFFECT and _SECURITY.search(key):
        # Such as a misspelt 'sslMode', without which a connection might not be encrypted.
        return None
    return no_effect(key, WITHOUT_EFFECT)


def refusal(key: str, value: str) -> str | None:
    """What to do instead of an option that would change rows, values or the server; else None."""
    if key in _TLS or value.strip().lower() in _TABLE["harmless"].get(key, ()):
        return None
    only = _TABLE["only"].get(key)
    if only is not None:
        fits = value.strip().lower() in only["values"]
        return None if fits else f"{only['instead']} (it is '{value}')"
    found = _refused(key)
    return None if found is None else _REFUSED[found]


def _refused(key: str) -> str | None:
    for known in _REFUSED:
        if key == known or key.startswith(known if known.endswith(".") else f"{known}."):
            return known
    return None


@dataclass(frozen=True)
class MySqlOptions:
    """The checked options; times in milliseconds, `chunk_size` in rows.

    For messages: `where` names the options that name the server, `privileges` what the user needs.
    `repr` hides the password.
    """

    server_ids: tuple[int, int] | None
    startup_position: BinlogPosition | None
    startup_gtids: str | None
    tls: Tls
    hostname: str = of_option("hostname")
    port: int = of_option("port")
    username: str = of_option("username")
    password: str = of_option("password")
    database: str = of_option("database-name")
    table: str = of_option("table-name")
    server_time_zone: str | None = of_option("server-time-zone")
    startup_mode: str = of_option("scan.startup.mode")
    startup_timestamp_ms: int | None = of_option("scan.startup.timestamp-millis")
    skip_events: int = of_option(f"{_SPECIFIC}.skip-events")
    skip_rows: int = of_option(f"{_SPECIFIC}.skip-rows")
    chunk_size: int = of_option("scan.incremental.snapshot.chunk.size")
    connect_timeout_ms: int = of_option("connect.timeout")
    connect_retries: int | None = of_option("connect.max-retries")
    heartbeat_ms: int = of_option("heartbeat.interval")
    relay_bytes: int = of_option("relay.max-size")
    append_only: bool = of_option(_APPEND_ONLY)
    online_schema_changes: bool = of_option("scan.parse.online.schema.changes.enabled")
    new_tables: bool = of_option("scan.newly-added-table.enabled")
    lock_timeout_ms: int = of_option(LOCK_TIMEOUT)
    zero_dates: ZeroDates = of_option(ZERO_DATES_OPTION)
    where: str = "the options 'hostname' and 'port'"
    privileges: str = "SELECT, REPLICATION SLAVE, REPLICATION CLIENT ON *.*"

    @property
    def has_snapshot(self) -> bool:
        """Whether a stream begins with the existing rows."""
        return self.startup_mode in ("initial", "snapshot")

    @property
    def starts_in_the_past(self) -> bool:
        """Whether a stream begins at an earlier position of the binlog."""
        return not self.has_snapshot and self.startup_mode != "latest-offset"

    @property
    def name(self) -> str:
        """`database.table`, for messages."""
        return f"{self.database}.{self.table}"

    @property
    def address(self) -> str:
        """`host:port`, for messages."""
        return f"{self.hostname}:{self.port}"

    def of(self, database: str, table: str) -> Self:
        """The options of one table of the server."""
        return replace(self, database=database, table=table)

    def server_id(self) -> int:
        """A random id for one binlog connection; the server disconnects one of two equal ids."""
        low, high = self.server_ids or (1_000_000_000, 2_000_000_000)
        return random.randint(low, high)


def parse(options: Mapping[str, str], named: str = WHERE) -> MySqlOptions:
    """The checked options; raises `OptionError` with the option and its allowed values.

    `named` is the connector, for errors.
    """
    for key, value in options.items():
        instead = refusal(key, value)
        if instead is not None:
            raise OptionError(f"option '{key}' is not supported: {instead}")
    effective = {
        key: value
        for key, value in options.items()
        if key in KNOWN or (without_effect(key) is None and not key.startswith(DEBEZIUM))
    }
    values = OptionValues(OPTIONS, effective)
    values.check(named)
    _check_time_zone(values["server-time-zone"])
    return values.record(
        MySqlOptions,
        server_ids=_server_ids(values["server-id"]),
        startup_position=_startup_position(values),
        startup_gtids=_startup_gtids(options),
        tls=parse_tls(options),
    )


def is_append_only(options: Mapping[str, str]) -> bool:
    """Whether to read each change as an inserted row."""
    return bool(OptionValues(OPTIONS, options)[_APPEND_ONLY])


def _startup_position(values: OptionValues) -> BinlogPosition | None:
    if values["scan.startup.mode"] != "specific-offset":
        return None
    if f"{_SPECIFIC}.gtid-set" in values:
        for name in ("file", "pos"):
            if f"{_SPECIFIC}.{name}" in values:
                raise OptionError(
                    f"option '{_SPECIFIC}.{name}' cannot be combined with "
                    f"'{_SPECIFIC}.gtid-set'; leave out one of them"
                )
        return None
    file = required(values.given, f"{_SPECIFIC}.file", WHERE)
    if not file.rpartition(".")[2].isdigit():
        raise OptionError(
            f"option '{_SPECIFIC}.file': '{file}' is not a binlog file; "
            "write a name that SHOW BINARY LOGS lists, such as 'binlog.000003'"
        )
    required(values.given, f"{_SPECIFIC}.pos", WHERE)
    return BinlogPosition(file, values[f"{_SPECIFIC}.pos"])


def _startup_gtids(options: Mapping[str, str]) -> str | None:
    key = f"{_SPECIFIC}.gtid-set"
    if key not in options:
        return None
    try:
        return str(parse_gtids(options[key]))
    except ValueError as error:
        raise OptionError(f"option '{key}': {error}") from None


def _server_ids(value: str | None) -> tuple[int, int] | None:
    if value is None:
        return None
    low, _, high = value.partition("-")
    first = integer("server-id", low, 1)
    last = integer("server-id", high or low, 1)
    if last < first or last >= 2**32:
        raise OptionError(
            f"option 'server-id': '{value}' is not a number below 4294967296, "
            "nor a range such as '5400-5408'"
        )
    return first, last


def _check_time_zone(value: str | None) -> None:
    if value is not None and zone_offset(value) is None:
        try:
            zoneinfo.ZoneInfo(value)
        except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
            raise OptionError(
                f"option 'server-time-zone': '{value}' is not a time zone; "
                "write one such as 'UTC', 'Asia/Shanghai' or '+08:00'"
            ) from None
