"""The options of the `jdbc` connector, under Flink's names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from urllib.parse import parse_qsl

from streamhouse.errors import OptionError
from streamhouse.mysql.options import MySqlOptions
from streamhouse.mysql.options import parse as parse_server
from streamhouse.mysql.tls import MAPPED as MAPPED_TLS_OPTIONS
from streamhouse.mysql.tls import PLAIN as TLS_OPTIONS
from streamhouse.options import (
    DeclaredOptions,
    OptionValues,
    check_known,
    choice,
    integer,
    required,
)

WHERE = "jdbc"
_PARTIAL = "lookup.partial-cache."
DECLARED = DeclaredOptions.of(__package__)
OPTIONS = (*DECLARED.options, *TLS_OPTIONS)
KNOWN = frozenset(option.key for option in OPTIONS)
"""Every option key that `jdbc` understands."""

_PROPERTIES = "jdbc.properties."
_TLS_PARAMETERS = {
    option.key: option.key.removeprefix(_PROPERTIES)
    for option in MAPPED_TLS_OPTIONS
    if option.key.startswith(_PROPERTIES)
}
"""The options of `mysql-cdc` for TLS, and the parameters of a URL that have their meaning."""

URL_KNOWN: frozenset[str] = frozenset(
    {
        *_TLS_PARAMETERS.values(),
        "serverTimezone",
        "connectionTimeZone",
        "allowPublicKeyRetrieval",
        "autoReconnect",
        "cachePrepStmts",
        "characterEncoding",
        "rewriteBatchedStatements",
        "tinyInt1isBit",
        "useServerPrepStmts",
        "useUnicode",
        "zeroDateTimeBehavior",
    }
)
"""Parameters of a URL; all but those of TLS and of the time zone have no effect here."""

_FROM_URL = {"server-time-zone": "serverTimezone", **_TLS_PARAMETERS}
_DRIVERS = ("com.mysql.cj.jdbc.Driver", "com.mysql.jdbc.Driver", "org.mariadb.jdbc.Driver")
_URL = re.compile(
    r"jdbc:(?:mysql|mariadb)://(?P<host>\[[0-9a-fA-F:.]+\]|[^:/?#@,()\s]+)(?::(?P<port>\d+))?"
    r"(?:/(?P<database>[^/?#\s]*))?(?:\?(?P<rest>\S*))?"
)


@dataclass(frozen=True)
class JdbcOptions:
    """The checked options.

    `cache`: whether rows are cached across batches. Each process caches at most `max_keys` keys,
    for `after_write_ms` since they were read and `after_access_ms` since their last lookup (None:
    no limit); with `cache_missing`, also that a key has no row.
    """

    server: MySqlOptions
    cache: bool = False
    max_keys: int = 100_000
    after_write_ms: int | None = None
    after_access_ms: int | None = None
    cache_missing: bool = True

    def describe(self) -> str:
        """The cache settings as text, for EXPLAIN."""
        if not self.cache:
            return "cache NONE"
        parts = [f"cache PARTIAL, {self.max_keys:,} keys"]
        if self.after_write_ms is not None:
            parts.append(f"valid for {self.after_write_ms} ms")
        if self.after_access_ms is not None:
            parts.append(f"dropped {self.after_access_ms} ms after their last lookup")
        if not self.cache_missing:
            parts.append("missing keys not cached")
        return ", ".join(parts)


def parse(options: Mapping[str, str]) -> JdbcOptions:
    """The checked options; raises `OptionError` with the option and its allowed values."""
    if any(DECLARED.earlier.get(key, "").startswith(_PARTIAL) for key in options):
        options = {"lookup.cache": "PARTIAL", **options}
    options = DECLARED.current(options)
    check_known(options, KNOWN, WHERE)
    if "driver" in options:
        choice("driver", options["driver"], _DRIVERS)
    values = OptionValues(OPTIONS, options)
    cache = values.choice("lookup.cache")
    for key in options:
        if key.startswith(_PARTIAL) and cache != "PARTIAL":
            raise OptionError(f"option '{key}' needs 'lookup.cache' = 'PARTIAL'")
    return JdbcOptions(
        _server(options),
        cache == "PARTIAL",
        values.integer(f"{_PARTIAL}max-rows", 1),
        _limit_ms(values, f"{_PARTIAL}expire-after-write"),
        _limit_ms(values, f"{_PARTIAL}expire-after-access"),
        values.boolean(f"{_PARTIAL}cache-missing-key"),
    )


def check_hint(options: Mapping[str, str], where: str) -> None:
    """Check the keys of an OPTIONS hint on the table; `parse` checks the values."""
    known = {key for key in (*KNOWN, *DECLARED.earlier) if key.startswith("lookup.")}
    check_known(options, known, where)


def _limit_ms(values: OptionValues, key: str) -> int | None:
    return values.duration_ms(key, 1) if key in values else None


def _server(options: Mapping[str, str]) -> MySqlOptions:
    host, port, database, parameters = _address(required(options, "url", WHERE))
    table = required(options, "table-name", WHERE)
    if not database:
        database, _, table = table.partition(".")
    if not table:
        raise OptionError(
            f"{WHERE}: the database is missing; add it to the option 'url' "
            "(jdbc:mysql://host:3306/database), or write 'table-name' as 'database.table'"
        )
    retries = OptionValues(OPTIONS, options).integer("lookup.max-retries", 0)
    server = {
        "hostname": host,
        "port": port,
        "username": required(options, "username", WHERE),
        "password": options.get("password", ""),
        "database-name": database,
        "table-name": table,
        "connect.max-retries": str(retries),
    }
    zone = parameters.get("connectionTimeZone", parameters.get("serverTimezone"))
    if zone is not None:
        server["server-time-zone"] = zone
    for key, parameter in _TLS_PARAMETERS.items():
        if parameter in parameters:
            server[key] = parameters[parameter]
    server |= {option.key: options[option.key] for option in TLS_OPTIONS if option.key in options}
    try:
        privileges = f"SELECT ON {database}.{table}"
        return replace(parse_server(server), where="the option 'url'", privileges=privileges)
    except OptionError as error:
        text = str(error)
        for key, parameter in _FROM_URL.items():
            text = text.replace(f"option '{key}'", f"option 'url': {parameter}")
            text = text.replace(f"'{key}'", f"'url': {parameter}")
        raise OptionError(text) from None


def _address(url: str) -> tuple[str, str, str, dict[str, str]]:
    """Host, port, database and parameters.

    No message quotes the URL, since it may contain a password.
    """
    match = _URL.fullmatch(url.strip())
    if match is None:
        raise OptionError(
            "option 'url' is not the URL of a MySQL server; write "
            "'jdbc:mysql://host:3306/database' "
            "or 'jdbc:mariadb://host:3306/database', and the options 'username' and 'password'"
        )
    parameters = dict(parse_qsl(match["rest"] or "", keep_blank_values=True))
    for key in parameters:
        if key in ("user", "username", "password"):
            raise OptionError(
                f"option 'url': the parameter '{key}' is not supported; use the options "
                "'username' and 'password'"
            )
    check_known(parameters, URL_KNOWN, "option 'url'")
    return match["host"].strip("[]"), match["port"] or "3306", match["database"] or "", parameters


_COLUMN = "scan.partition.column"
_NUMBER = "scan.partition.num"
_LOWER = "scan.partition.lower-bound"
_UPPER = "scan.partition.upper-bound"


@dataclass(frozen=True)
class ScanOptions:
    """How to split a read; the bounds are None if the server is asked for them."""

    column: str
    number: int
    lower: str | None = None
    upper: str | None = None


def parse_scan(options: Mapping[str, str]) -> ScanOptions | None:
    """The checked options, None for a read by one query; raises `OptionError`."""
    given = [key for key in (_COLUMN, _NUMBER, _LOWER, _UPPER) if key in options]
    if not given:
        return None
    for key in (_COLUMN, _NUMBER):
        if key not in options:
            raise OptionError(f"option '{given[0]}' needs '{key}'")
    if (_LOWER in options) != (_UPPER in options):
        missing = _UPPER if _LOWER in options else _LOWER
        raise OptionError(f"option '{given[-1]}' needs '{missing}'; or leave out both bounds")
    number = integer(_NUMBER, options[_NUMBER], 1)
    return ScanOptions(options[_COLUMN], number, options.get(_LOWER), options.get(_UPPER))


_RETRIES, _GUARANTEE = "sink.max-retries", "sink.delivery-guarantee"


@dataclass(frozen=True)
class WriteOptions:
    """The checked options of a sink; `guarantee` is None if the server decides.

    `statement_rows`: of one statement, None: no limit; `retries`: None is the default.
    """

    statement_rows: int | None
    retries: int | None
    guarantee: str | None
    commits_table: str


def parse_write(options: Mapping[str, str]) -> WriteOptions:
    """The checked options; raises `OptionError`."""
    values = OptionValues(OPTIONS, options)
    return WriteOptions(
        values.integer("sink.buffer-flush.max-rows", 0) or None,
        values.integer(_RETRIES, 0) if _RETRIES in options else None,
        values.choice(_GUARANTEE) if _GUARANTEE in options else None,
        values.text("sink.commits-table"),
    )
