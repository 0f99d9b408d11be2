"""The options of the `jdbc` connector, under Flink's names."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from urllib.parse import parse_qsl

from streamhouse.errors import OptionError
from streamhouse.mysql.options import MySqlOptions
from streamhouse.mysql.options import parse as parse_server
from streamhouse.mysql.tls import MAPPED as MAPPED_TLS_OPTIONS
from streamhouse.mysql.tls import PLAIN as TLS_OPTIONS
from streamhouse.options import DeclaredOptions, OptionValues, check_known, of_option, table_of

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

URL_KNOWN = (*_TLS_PARAMETERS.values(), *table_of(__package__, "options.toml")["url"]["parameters"])
"""Parameters of a URL; all but those of TLS and of the time zone have no effect here."""

_FROM_URL = {"server-time-zone": "serverTimezone", **_TLS_PARAMETERS}
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
    cache: bool
    max_keys: int = of_option(f"{_PARTIAL}max-rows")
    after_write_ms: int | None = of_option(f"{_PARTIAL}expire-after-write")
    after_access_ms: int | None = of_option(f"{_PARTIAL}expire-after-access")
    cache_missing: bool = of_option(f"{_PARTIAL}cache-missing-key")

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
    values = OptionValues(OPTIONS, DECLARED.current(options))
    values.check(WHERE)
    cache = values["lookup.cache"] == "PARTIAL"
    return values.record(JdbcOptions, server=_server(values), cache=cache)


def check_hint(options: Mapping[str, str], where: str) -> None:
    """Check the keys of an OPTIONS hint on the table; `parse` checks the values."""
    known = {key for key in (*KNOWN, *DECLARED.earlier) if key.startswith("lookup.")}
    check_known(options, known, where)


def _server(values: OptionValues) -> MySqlOptions:
    options, table = values.given, values["table-name"]
    host, port, database, parameters = _address(values["url"])
    if not database:
        database, _, table = table.partition(".")
    if not table:
        raise OptionError(
            f"{WHERE}: the database is missing; add it to the option 'url' "
            "(jdbc:mysql://host:3306/database), or write 'table-name' as 'database.table'"
        )
    server = {
        "hostname": host,
        "port": port,
        "username": values["username"],
        "password": options.get("password", ""),
        "database-name": database,
        "table-name": table,
        "connect.max-retries": str(values["lookup.max-retries"]),
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
        return replace(parse_server(server, WHERE), where="the option 'url'", privileges=privileges)
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


@dataclass(frozen=True)
class ScanOptions:
    """How to split a read; the bounds are None if the server is asked for them."""

    column: str = of_option("scan.partition.column")
    number: int = of_option("scan.partition.num")
    lower: str | None = of_option("scan.partition.lower-bound", None)
    upper: str | None = of_option("scan.partition.upper-bound", None)


@dataclass(frozen=True)
class WriteOptions:
    """The options of a sink; `guarantee` is None if the server decides.

    `statement_rows`: of one statement, 0: no limit; `retries`: None is the default.
    """

    statement_rows: int = of_option("sink.buffer-flush.max-rows")
    retries: int | None = of_option("sink.max-retries")
    guarantee: str | None = of_option("sink.delivery-guarantee")
    commits_table: str = of_option("sink.commits-table")
