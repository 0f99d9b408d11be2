"""The options of the `mysql-cdc` connector, under Flink CDC's names."""

from __future__ import annotations

import random
import re
import zoneinfo
from collections.abc import Mapping
from dataclasses import dataclass, field

from streamhouse.connectors.base import Option
from streamhouse.connectors.mysql_cdc.server.gtids import parse_gtids
from streamhouse.connectors.mysql_cdc.server.passthrough import (
    DEBEZIUM,
    LOCK_TIMEOUT,
    refusal,
    without_effect,
)
from streamhouse.connectors.mysql_cdc.server.position import BinlogPosition
from streamhouse.connectors.mysql_cdc.server.tls import OPTIONS as TLS_OPTIONS
from streamhouse.connectors.mysql_cdc.server.tls import Tls, parse_tls
from streamhouse.connectors.mysql_cdc.server.values.dates import OPTION as ZERO_DATES_OPTION
from streamhouse.connectors.mysql_cdc.server.values.dates import ZERO_DATES, ZeroDates
from streamhouse.connectors.mysql_cdc.server.values.types import zone_offset
from streamhouse.errors import OptionError
from streamhouse.options import boolean, check_known, choice, duration_ms, integer, required

WHERE = "mysql-cdc"

_NEW_TABLES = "scan.newly-added-table.enabled"
_ONLINE = "scan.parse.online.schema.changes.enabled"
_APPEND_ONLY = "scan.read-changelog-as-append-only.enabled"

OPTIONS = (
    Option("hostname", "STRING", "the server's host name or address", required=True),
    Option("port", "INT", "the server's port", "3306"),
    Option(
        "username",
        "STRING",
        "the user, who needs `SELECT`, `REPLICATION SLAVE` and `REPLICATION CLIENT`",
        required=True,
    ),
    Option("password", "STRING", "the user's password", required=True),
    Option(
        "database-name",
        "STRING",
        "the database, or a regular expression of whole names",
        required=True,
    ),
    Option(
        "table-name",
        "STRING",
        "the table, or a regular expression of whole names: "
        "[several tables are read as one](../guides/mysql.md#shards-as-one-table)",
        required=True,
    ),
    Option(
        "server-id",
        "INT or range",
        "a number or a range such as `5400-5408`, for the binlog connections; default: a random "
        "number",
    ),
    Option(
        "server-time-zone",
        "STRING",
        "the server's time zone, such as `UTC` or `+08:00`; default: the server's own setting",
    ),
    Option(
        "scan.startup.mode",
        "`initial`, `snapshot`, `latest-offset`, `earliest-offset`, `specific-offset`, `timestamp`",
        "`initial`: all rows, then changes; `snapshot`: all rows, and the source ends",
        "initial",
    ),
    Option(
        "scan.startup.specific-offset.file", "STRING", "binlog file where `specific-offset` starts"
    ),
    Option("scan.startup.specific-offset.pos", "INT", "position where `specific-offset` starts"),
    Option(
        "scan.startup.specific-offset.gtid-set",
        "STRING",
        "`specific-offset` starts after these transactions, such as `0-1-270` (MariaDB), or "
        "`3e11fa47-71ca-11e1-9e33-c80aa9429562:1-7:9-10` (MySQL); instead of a file and position",
    ),
    Option(
        "scan.startup.specific-offset.skip-events",
        "INT",
        "how many events `specific-offset` leaves out after its start",
        "0",
    ),
    Option(
        "scan.startup.specific-offset.skip-rows",
        "INT",
        "how many rows of the next row event `specific-offset` leaves out after those events",
        "0",
    ),
    Option(
        "scan.startup.timestamp-millis",
        "INT",
        "milliseconds since 1970: `timestamp` starts with the first transaction that was committed "
        "then or later (the binlog has whole seconds)",
    ),
    Option(
        "scan.incremental.snapshot.enabled",
        "BOOLEAN",
        "checked, without effect: the snapshot is always incremental, without locks",
        "true",
    ),
    Option("scan.incremental.snapshot.chunk.size", "INT", "rows per chunk of the snapshot", "8096"),
    Option(
        "scan.snapshot.fetch.size",
        "INT",
        "checked, without effect: rows are streamed as they are read",
        "1024",
    ),
    Option(
        _APPEND_ONLY,
        "BOOLEAN",
        "`true`: each change is an inserted row, also `-U` and `-D`; the METADATA key `row_kind` "
        "says which it was",
        "false",
    ),
    Option(
        _NEW_TABLES,
        "BOOLEAN",
        "`true`: tables that match the regular expressions and are created later are read, too, "
        "their rows first",
        "false",
    ),
    Option(
        _ONLINE,
        "BOOLEAN",
        "`true`: a table that gh-ost or pt-online-schema-change swaps is followed; it is trusted "
        "that they copied all rows. A [sync](../guides/sync.md#schema-changes) follows any swap, "
        "and compares the rows",
        "false",
    ),
    Option(
        ZERO_DATES_OPTION,
        "`CONVERT_TO_NULL`, `ROUND`, `EXCEPTION`",
        "how to read [zero dates](../guides/mysql.md#zero-dates): as NULL (in a key an error), as "
        "0001-01-01, or as an error; also spelled `convertToNull`, `round`, `exception`",
        "CONVERT_TO_NULL",
    ),
    Option(
        LOCK_TIMEOUT,
        "INT",
        "how many milliseconds the snapshot of "
        "[a table without a key](../guides/mysql.md#tables-without-a-key) waits for its short lock",
        "60000",
    ),
    Option("connect.timeout", "DURATION", "the timeout for connecting", "30s"),
    Option(
        "connect.max-retries",
        "INT",
        "the number of retries of a failed connection when a query starts; default: retries for "
        "five seconds when a query starts for the first time, else for three minutes",
    ),
    Option(
        "heartbeat.interval",
        "DURATION",
        "how often the position of an idle table advances, in scripts",
        "30s",
    ),
    Option(
        "relay.max-size",
        "MEMORY SIZE",
        "the disk space for the pipeline's "
        "[one binlog reader](../guides/mysql.md#several-mysql-tables), in scripts; `0`: the table "
        "has a connection of its own",
        "256 mb",
    ),
    *TLS_OPTIONS,
)
KNOWN = frozenset(option.key for option in OPTIONS)
"""Every option key that `mysql-cdc` understands."""

_SIZE = re.compile(r"(\d+)\s*(b|kb|mb|gb)?")
_UNITS = {"b": 1, "kb": 1 << 10, "mb": 1 << 20, "gb": 1 << 30}
STARTUP_MODES = (
    "initial",
    "latest-offset",
    "earliest-offset",
    "specific-offset",
    "timestamp",
    "snapshot",
)
_INCREMENTAL = "scan.incremental.snapshot.enabled"
_FETCH_SIZE = "scan.snapshot.fetch.size"
_SPECIFIC = "scan.startup.specific-offset"


@dataclass(frozen=True)
class MySqlOptions:
    """The checked options; times in milliseconds, `chunk_size` in rows.

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

    @property
    def has_snapshot(self) -> bool:
        """Whether a stream begins with the existing rows."""
        return self.startup_mode in ("initial", "snapshot")

    @property
    def starts_in_the_past(self) -> bool:
        """Whether a stream begins at an earlier position of the binlog."""
        return not self.has_snapshot and self.startup_mode != "latest-offset"

    @property
    def startup_searched(self) -> bool:
        """Whether the startup position of `specific-offset` must be searched in the binlog."""
        return self.startup_gtids is not None or bool(self.skip_events or self.skip_rows)

    @property
    def name(self) -> str:
        """`database.table`, for messages."""
        return f"{self.database}.{self.table}"

    @property
    def address(self) -> str:
        """`host:port`, for messages."""
        return f"{self.hostname}:{self.port}"

    @property
    def where(self) -> str:
        """The options that name the server, for messages."""
        return "the options 'hostname' and 'port'"

    @property
    def grants(self) -> str:
        """The statement that grants the user the privileges it needs."""
        return f"GRANT SELECT, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO '{self.username}'"

    def server_id(self) -> int:
        """A random id for one binlog connection; the server disconnects one of two equal ids."""
        low, high = self.server_ids or (1_000_000_000, 2_000_000_000)
        return random.randint(low, high)


def parse(options: Mapping[str, str]) -> MySqlOptions:
    """The checked options; raises `OptionError` with the option and its allowed values."""
    effective = {key: value for key, value in options.items() if without_effect(key) is None}
    _check_refused(options)
    check_known([key for key in effective if not key.startswith(DEBEZIUM)], KNOWN, WHERE)
    boolean(_INCREMENTAL, options.get(_INCREMENTAL, "true"))
    integer(_FETCH_SIZE, options.get(_FETCH_SIZE, "1024"), 1)
    mode = _startup_mode(options)
    retries = "connect.max-retries"

    def number(key: str, default: int, minimum: int = 1) -> int:
        return integer(key, options.get(key, str(default)), minimum)

    return MySqlOptions(
        hostname=required(options, "hostname", WHERE),
        port=number("port", 3306),
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
        skip_events=number(f"{_SPECIFIC}.skip-events", 0, 0),
        skip_rows=number(f"{_SPECIFIC}.skip-rows", 0, 0),
        chunk_size=number("scan.incremental.snapshot.chunk.size", 8096),
        connect_timeout_ms=_duration(options, "connect.timeout", "30s"),
        connect_retries=None if retries not in options else number(retries, 3, 0),
        heartbeat_ms=_duration(options, "heartbeat.interval", "30s"),
        relay_bytes=_bytes("relay.max-size", options.get("relay.max-size", "256 mb")),
        tls=parse_tls(options),
        append_only=is_append_only(options),
        online_schema_changes=boolean(_ONLINE, options.get(_ONLINE, "false")),
        new_tables=boolean(_NEW_TABLES, options.get(_NEW_TABLES, "false")),
        lock_timeout_ms=number(LOCK_TIMEOUT, 60_000),
        zero_dates=_zero_dates(options.get(ZERO_DATES_OPTION, "CONVERT_TO_NULL")),
    )


def _bytes(key: str, value: str) -> int:
    match = _SIZE.fullmatch(value.strip().lower())
    if match is None:
        raise OptionError(
            f"option '{key}': '{value}' is not a size; write a number and a unit, such as "
            "'256 mb' or '1 gb', or '0' for one connection per table"
        )
    return int(match[1]) * _UNITS[match[2] or "b"]


def _zero_dates(value: str) -> ZeroDates:
    spelled = {name.replace("_", ""): name for name in ZERO_DATES}
    found = spelled.get(value.strip().upper().replace("_", ""))
    if found is None:
        raise OptionError(
            f"option '{ZERO_DATES_OPTION}': '{value}' is not one of {', '.join(ZERO_DATES)}"
        )
    return found


def _duration(options: Mapping[str, str], key: str, default: str) -> int:
    value = duration_ms(key, options.get(key, default))
    if value < 1:
        raise OptionError(f"option '{key}': '{options[key]}' is too short; the least is '1ms'")
    return value


def is_append_only(options: Mapping[str, str]) -> bool:
    """Whether to read each change as an inserted row."""
    return boolean(_APPEND_ONLY, options.get(_APPEND_ONLY, "false"))


def _check_refused(options: Mapping[str, str]) -> None:
    for key, value in options.items():
        instead = refusal(key, value)
        if instead is not None:
            raise OptionError(f"option '{key}' is not supported: {instead}")


def _startup_mode(options: Mapping[str, str]) -> str:
    key = "scan.startup.mode"
    mode = options.get(key, "initial")
    mode = choice(key, mode, STARTUP_MODES)
    for name in ("file", "pos", "gtid-set", "skip-events", "skip-rows"):
        extra = f"{_SPECIFIC}.{name}"
        if extra in options and mode != "specific-offset":
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
