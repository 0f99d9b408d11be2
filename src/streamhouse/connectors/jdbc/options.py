"""The options of the `jdbc` connector, under Flink's names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import parse_qsl

from streamhouse.connectors.base import Option
from streamhouse.connectors.jdbc.scan_options import SCAN_OPTIONS, SCAN_WITHOUT_EFFECT
from streamhouse.connectors.jdbc.write_options import WRITE_OPTIONS, WRITE_WITHOUT_EFFECT
from streamhouse.connectors.mysql_cdc.server.options import MySqlOptions
from streamhouse.connectors.mysql_cdc.server.options import parse as parse_server
from streamhouse.connectors.mysql_cdc.server.tls import MAPPED as MAPPED_TLS_OPTIONS
from streamhouse.connectors.mysql_cdc.server.tls import PLAIN as TLS_OPTIONS
from streamhouse.errors import OptionError
from streamhouse.options import boolean, check_known, choice, duration_ms, integer, required

WHERE = "jdbc"
CACHED_KEYS = 100_000
_PARTIAL = "lookup.partial-cache."
OPTIONS = (
    Option(
        "url",
        "STRING",
        "`jdbc:mysql://host:port/database` or `jdbc:mariadb://…`; only its parameters "
        "`serverTimezone`, and those of TLS (`sslMode`, `useSSL`, `trustCertificateKeyStoreUrl`, "
        "…, as in `mysql-cdc`) have an effect",
        required=True,
    ),
    Option(
        "table-name",
        "STRING",
        "the table or view; `database.table` if the URL names no database",
        required=True,
    ),
    Option(
        "username",
        "STRING",
        "the user, who needs `SELECT` on the table, and to write it `INSERT`, `UPDATE`, `DELETE`",
        required=True,
    ),
    Option("password", "STRING", "the user's password"),
    Option("driver", "STRING", "accepted, without effect"),
    Option(
        "lookup.cache",
        "`NONE`, `PARTIAL`",
        "`NONE`: each batch queries its keys. `PARTIAL`: each process caches the rows that it read",
        "NONE",
    ),
    Option(f"{_PARTIAL}max-rows", "INT", "the largest number of cached keys", "100000"),
    Option(
        f"{_PARTIAL}expire-after-write",
        "DURATION",
        "how long a cached key is valid after it was read; default: no limit",
    ),
    Option(
        f"{_PARTIAL}expire-after-access",
        "DURATION",
        "how long a cached key is kept after its last lookup; default: no limit",
    ),
    Option(
        f"{_PARTIAL}cache-missing-key",
        "BOOLEAN",
        "whether keys without a row are cached, too",
        "true",
    ),
    Option("lookup.max-retries", "INT", "the number of retries of a failed connection", "3"),
    *SCAN_OPTIONS,
    *WRITE_OPTIONS,
    *TLS_OPTIONS,
)
KNOWN = frozenset(option.key for option in OPTIONS)
"""Every option key that `jdbc` understands."""

WITHOUT_EFFECT: dict[str, str] = {
    "connection.max-retry-timeout": "'lookup.max-retries' sets the number of retries",
    **SCAN_WITHOUT_EFFECT,
    **WRITE_WITHOUT_EFFECT,
}
"""Options of Flink's connector that have no effect here, and why."""

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

EARLIER = {
    "lookup.cache.max-rows": f"{_PARTIAL}max-rows",
    "lookup.cache.ttl": f"{_PARTIAL}expire-after-write",
    "lookup.cache.caching-missing-key": f"{_PARTIAL}cache-missing-key",
}
"""Keys of earlier Flink releases and their current names; each implies the cache `PARTIAL`."""

_CACHES = ("NONE", "PARTIAL")
_FROM_URL = {"server-time-zone": "serverTimezone", **_TLS_PARAMETERS}
_DRIVERS = ("com.mysql.cj.jdbc.Driver", "com.mysql.jdbc.Driver", "org.mariadb.jdbc.Driver")
_URL = re.compile(
    r"jdbc:(?:mysql|mariadb)://(?P<host>\[[0-9a-fA-F:.]+\]|[^:/?#@,()\s]+)(?::(?P<port>\d+))?"
    r"(?:/(?P<database>[^/?#\s]*))?(?:\?(?P<rest>\S*))?"
)


class JdbcServer(MySqlOptions):
    """A server and one of its tables, as the options name them; `repr` hides the password."""

    @property
    def where(self) -> str:
        return "the option 'url'"

    @property
    def grants(self) -> str:
        return f"GRANT SELECT ON {self.database}.{self.table} TO '{self.username}'"


@dataclass(frozen=True)
class JdbcOptions:
    """The checked options.

    `cache`: whether rows are cached across batches. Each process caches at most `max_keys` keys,
    for `after_write_ms` since they were read and `after_access_ms` since their last lookup (None:
    no limit); with `cache_missing`, also that a key has no row.
    """

    server: JdbcServer
    cache: bool = False
    max_keys: int = CACHED_KEYS
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
    options = _renamed({key: options[key] for key in options if key not in WITHOUT_EFFECT})
    check_known(options, KNOWN, WHERE)
    if "driver" in options:
        choice("driver", options["driver"], _DRIVERS)
    cache = choice("lookup.cache", options.get("lookup.cache", "NONE").upper(), _CACHES)
    for key in options:
        if key.startswith(_PARTIAL) and cache != "PARTIAL":
            raise OptionError(f"option '{key}' needs 'lookup.cache' = 'PARTIAL'")
    missing = f"{_PARTIAL}cache-missing-key"
    most = f"{_PARTIAL}max-rows"
    return JdbcOptions(
        _server(options),
        cache == "PARTIAL",
        integer(most, options.get(most, str(CACHED_KEYS)), 1),
        _duration(options, f"{_PARTIAL}expire-after-write"),
        _duration(options, f"{_PARTIAL}expire-after-access"),
        boolean(missing, options.get(missing, "true")),
    )


def _renamed(options: Mapping[str, str]) -> dict[str, str]:
    """The options, with keys of earlier releases replaced by their current names."""
    renamed = {key: value for key, value in options.items() if key not in EARLIER}
    for key, value in options.items():
        if key in EARLIER:
            renamed.setdefault(EARLIER[key], value)
            renamed.setdefault("lookup.cache", "PARTIAL")
    return renamed


def check_hint(options: Mapping[str, str], where: str) -> None:
    """Check the keys of an OPTIONS hint on the table; `parse` checks the values."""
    known = {key for key in (*KNOWN, *EARLIER) if key.startswith("lookup.")}
    check_known(options, known, where)


def _duration(options: Mapping[str, str], key: str) -> int | None:
    if key not in options:
        return None
    value = duration_ms(key, options[key])
    if value < 1:
        raise OptionError(f"option '{key}': '{options[key]}' is too short; the least is '1ms'")
    return value


def _server(options: Mapping[str, str]) -> JdbcServer:
    host, port, database, parameters = _address(required(options, "url", WHERE))
    table = required(options, "table-name", WHERE)
    if not database:
        database, _, table = table.partition(".")
    if not table:
        raise OptionError(
            f"{WHERE}: the database is missing; add it to the option 'url' "
            "(jdbc:mysql://host:3306/database), or write 'table-name' as 'database.table'"
        )
    retries = "lookup.max-retries"
    integer(retries, options.get(retries, "3"), 0)
    server = {
        "hostname": host,
        "port": port,
        "username": required(options, "username", WHERE),
        "password": options.get("password", ""),
        "database-name": database,
        "table-name": table,
        "connect.max-retries": options.get(retries, "3"),
    }
    zone = parameters.get("connectionTimeZone", parameters.get("serverTimezone"))
    if zone is not None:
        server["server-time-zone"] = zone
    for key, parameter in _TLS_PARAMETERS.items():
        if parameter in parameters:
            server[key] = parameters[parameter]
    server |= {option.key: options[option.key] for option in TLS_OPTIONS if option.key in options}
    try:
        return JdbcServer(**vars(parse_server(server)))
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
