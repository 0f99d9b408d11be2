"""The options of a MySQL server and its tables, as Flink CDC names them for `mysql-cdc`.

Flink CDC passes all `debezium.*` on to Debezium and all `jdbc.properties.*` to MySQL's JDBC driver.
Here each of them has an effect (`KNOWN`), a reason why it has none, or an error.
"""

from __future__ import annotations

import random
import re
import zoneinfo
from collections.abc import Mapping
from dataclasses import dataclass, field

from streamhouse.errors import OptionError
from streamhouse.mysql.gtids import parse_gtids
from streamhouse.mysql.position import BinlogPosition
from streamhouse.mysql.tls import OPTIONS as TLS_OPTIONS
from streamhouse.mysql.tls import Tls, parse_tls
from streamhouse.mysql.values.dates import OPTION as ZERO_DATES_OPTION
from streamhouse.mysql.values.dates import ZERO_DATES, ZeroDates
from streamhouse.mysql.values.types import zone_offset
from streamhouse.options import (
    DeclaredOptions,
    OptionValues,
    by_key,
    check_known,
    integer,
    memory_bytes,
    no_effect,
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
_HARMLESS = {
    "debezium.skipped.operations": ("none", "t", ""),
    "debezium.binary.handling.mode": ("none", "bytes"),
}
_ONLY = {
    "schema-change.enabled": (
        ("true",),
        "statements that alter a table are followed; give a sync --schema-change-behavior ignore",
    ),
}
"""Options without effect, with the only values that describe what this connector does."""


WHERE = "mysql-cdc"
OPTIONS = (*DeclaredOptions.of(__package__).options, *TLS_OPTIONS)
KNOWN = frozenset(option.key for option in OPTIONS)
"""Every option key that `mysql-cdc` understands."""
_SPECIFIC = "scan.startup.specific-offset"


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
    if key in _TLS or value.strip().lower() in _HARMLESS.get(key, ()):
        return None
    if key in _ONLY:
        values, instead = _ONLY[key]
        return None if value.strip().lower() in values else f"{instead} (it is '{value}')"
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

    hostname: str
    port: int
    username: str
    password: str = field(repr=False)
    database: str
    table: str
    server_ids: tuple[int, int] | None
    server_time_zone: str | None
    startup_mode: str
    startup_position: BinlogPosition | None
    startup_gtids: str | None
    startup_timestamp_ms: int | None
    skip_events: int
    skip_rows: int
    chunk_size: int
    connect_timeout_ms: int
    connect_retries: int | None
    heartbeat_ms: int
    relay_bytes: int
    tls: Tls
    append_only: bool = False
    online_schema_changes: bool = False
    new_tables: bool = False
    lock_timeout_ms: int = 60_000
    zero_dates: ZeroDates = "CONVERT_TO_NULL"
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

    def server_id(self) -> int:
        """A random id for one binlog connection; the server disconnects one of two equal ids."""
        low, high = self.server_ids or (1_000_000_000, 2_000_000_000)
        return random.randint(low, high)


def parse(options: Mapping[str, str]) -> MySqlOptions:
    """The checked options; raises `OptionError` with the option and its allowed values."""
    effective = {key: value for key, value in options.items() if without_effect(key) is None}
    for key, value in options.items():
        instead = refusal(key, value)
        if instead is not None:
            raise OptionError(f"option '{key}' is not supported: {instead}")
    check_known([key for key in effective if not key.startswith(DEBEZIUM)], KNOWN, WHERE)
    values = OptionValues(OPTIONS, options)
    values.boolean("scan.incremental.snapshot.enabled")
    values.integer("scan.snapshot.fetch.size", 1)
    mode = _startup_mode(values)
    retries = "connect.max-retries"
    return MySqlOptions(
        hostname=required(options, "hostname", WHERE),
        port=values.integer("port", 1),
        username=required(options, "username", WHERE),
        password=required(options, "password", WHERE),
        database=required(options, "database-name", WHERE),
        table=required(options, "table-name", WHERE),
        server_ids=_server_ids(options.get("server-id")),
        server_time_zone=_time_zone(options.get("server-time-zone")),
        startup_mode=mode,
        startup_position=_startup_position(options) if mode == "specific-offset" else None,
        startup_gtids=_startup_gtids(options),
        startup_timestamp_ms=_startup_timestamp(options, mode),
        skip_events=values.integer(f"{_SPECIFIC}.skip-events", 0),
        skip_rows=values.integer(f"{_SPECIFIC}.skip-rows", 0),
        chunk_size=values.integer("scan.incremental.snapshot.chunk.size", 1),
        connect_timeout_ms=values.duration_ms("connect.timeout", 1),
        connect_retries=values.integer(retries, 0) if retries in options else None,
        heartbeat_ms=values.duration_ms("heartbeat.interval", 1),
        relay_bytes=memory_bytes("relay.max-size", values.text("relay.max-size")),
        tls=parse_tls(options),
        append_only=is_append_only(options),
        online_schema_changes=values.boolean("scan.parse.online.schema.changes.enabled"),
        new_tables=values.boolean("scan.newly-added-table.enabled"),
        lock_timeout_ms=values.integer(LOCK_TIMEOUT, 1),
        zero_dates=_zero_dates(values.text(ZERO_DATES_OPTION)),
    )


def _zero_dates(value: str) -> ZeroDates:
    spelled = {name.replace("_", ""): name for name in ZERO_DATES}
    found = spelled.get(value.strip().upper().replace("_", ""))
    if found is None:
        raise OptionError(
            f"option '{ZERO_DATES_OPTION}': '{value}' is not one of {', '.join(ZERO_DATES)}"
        )
    return found


def is_append_only(options: Mapping[str, str]) -> bool:
    """Whether to read each change as an inserted row."""
    return OptionValues(OPTIONS, options).boolean("scan.read-changelog-as-append-only.enabled")


def _startup_mode(values: OptionValues) -> str:
    key = "scan.startup.mode"
    mode = values.choice(key)
    for name in ("file", "pos", "gtid-set", "skip-events", "skip-rows"):
        extra = f"{_SPECIFIC}.{name}"
        if extra in values and mode != "specific-offset":
            raise OptionError(f"option '{extra}' needs '{key}' = 'specific-offset'")
    return mode


def _startup_position(options: Mapping[str, str]) -> BinlogPosition | None:
    if f"{_SPECIFIC}.gtid-set" in options:
        for name in ("file", "pos"):
            if f"{_SPECIFIC}.{name}" in options:
                raise OptionError(
                    f"option '{_SPECIFIC}.{name}' cannot be combined with "
                    f"'{_SPECIFIC}.gtid-set'; leave out one of them"
                )
        return None
    file = required(options, f"{_SPECIFIC}.file", WHERE)
    if not file.rpartition(".")[2].isdigit():
        raise OptionError(
            f"option '{_SPECIFIC}.file': '{file}' is not a binlog file; "
            "write a name that SHOW BINARY LOGS lists, such as 'binlog.000003'"
        )
    key = f"{_SPECIFIC}.pos"
    return BinlogPosition(file, integer(key, required(options, key, WHERE), 4))


def _startup_gtids(options: Mapping[str, str]) -> str | None:
    key = f"{_SPECIFIC}.gtid-set"
    if key not in options:
        return None
    try:
        return str(parse_gtids(options[key]))
    except ValueError as error:
        raise OptionError(f"option '{key}': {error}") from None


def _startup_timestamp(options: Mapping[str, str], mode: str) -> int | None:
    key = "scan.startup.timestamp-millis"
    if mode == "timestamp":
        return integer(key, required(options, key, WHERE), 0)
    if key in options:
        raise OptionError(f"option '{key}' needs 'scan.startup.mode' = 'timestamp'")
    return None


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


def _time_zone(value: str | None) -> str | None:
    if value is not None and zone_offset(value) is None:
        try:
            zoneinfo.ZoneInfo(value)
        except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
            raise OptionError(
                f"option 'server-time-zone': '{value}' is not a time zone; "
                "write one such as 'UTC', 'Asia/Shanghai' or '+08:00'"
            ) from None
    return value
