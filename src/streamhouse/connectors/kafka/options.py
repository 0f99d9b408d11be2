"""The options of the `kafka` connector, under Flink's names."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

from streamhouse.connectors.bad_records import OPTIONS as BAD_RECORDS
from streamhouse.connectors.bad_records import BadRecordOptions
from streamhouse.errors import OptionError
from streamhouse.formats import base as formats
from streamhouse.formats.base import FormatChoice
from streamhouse.options import DeclaredOptions, OptionValues, choice, of_option, table_of

EARLIEST, LATEST, GROUPS = "earliest-offset", "latest-offset", "group-offsets"
TIMESTAMP, SPECIFIC, UNBOUNDED = "timestamp", "specific-offsets", "unbounded"
FORMATS = tuple(formats.format_of(name) for name in formats.names())
_BEFORE, _STARTUP = ("", "key.", "value."), "scan.startup"

DECLARED = DeclaredOptions.of(__package__)
OPTIONS = (*DECLARED.options, *BAD_RECORDS)
_ALL = (*OPTIONS, *(one for before in _BEFORE for one in formats.declared_options(FORMATS, before)))


@dataclass(frozen=True)
class ScanPosition:
    """Where reading starts or ends.

    `mode` is a value of `scan.startup.mode` or `scan.bounded.mode`; None: it is not set.
    `offsets`, by partition, are those of `specific-offsets`, `timestamp_ms` (epoch ms) is that of
    `timestamp`.
    """

    mode: str | None
    offsets: Mapping[int, int] = field(default_factory=dict)
    timestamp_ms: int = 0


@dataclass(frozen=True)
class KafkaOptions:
    """The options of a `kafka` table, checked; `repr` hides the clients' properties."""

    topics: tuple[str, ...]
    properties: Mapping[str, str] = field(repr=False)
    value: FormatChoice
    key: FormatChoice | None
    key_fields: tuple[str, ...]
    value_has_key: bool
    startup: ScanPosition
    bounded: ScanPosition
    bad_records: BadRecordOptions
    pattern: str | None = of_option("topic-pattern")
    key_prefix: str = of_option("key.fields-prefix")
    discovery_ms: int = of_option("scan.topic-partition-discovery.interval")
    partitioner: str = of_option("sink.partitioner")
    guarantee: str = of_option("sink.delivery-guarantee")
    transactions: str | None = of_option("sink.transactional-id-prefix")

    @property
    def servers(self) -> str:
        """The brokers' addresses."""
        return self.properties[SERVERS]

    @property
    def group(self) -> str | None:
        """The consumer group; None if there is none."""
        return self.properties.get(GROUP)

    @property
    def reset(self) -> str:
        """Java's `auto.offset.reset`."""
        return self.properties.get(RESET, "none")

    @property
    def is_bounded(self) -> bool:
        """Whether the source ends."""
        return self.bounded.mode != UNBOUNDED

    @property
    def origin(self) -> str:
        """What the offsets belong to: the topics."""
        return f"kafka {self.pattern or ';'.join(sorted(self.topics))}"

    def for_bounded_read(self) -> Self:
        """The options of a read that ends: by default, from the beginning to the current end."""
        startup = self.startup if self.startup.mode is not None else ScanPosition(EARLIEST)
        bounded = self.bounded if self.is_bounded else ScanPosition(LATEST)
        return replace(self, startup=startup, bounded=bounded)

    def properties_of(self, kind: str) -> dict[str, str]:
        """The properties that an `admin` client or a `producer` has."""
        other = _TABLE["not_of"][kind]
        return {key: value for key, value in self.properties.items() if key not in other}


def known_keys() -> list[str]:
    """Every option key, apart from `properties.*`."""
    return [option.key for option in _ALL]


def parse(options: Mapping[str, str], where: str) -> KafkaOptions:
    """Check the options of a table; raises `OptionError`. `where` begins messages."""
    values = OptionValues(_ALL, options)
    values.check(where)
    if not options[PREFIX + SERVERS]:
        raise OptionError(f"{where}: option '{PREFIX}{SERVERS}' is missing; set it to the brokers")
    value = _value_format(options, where)
    key = _format(options, "key.format", "key.", where) if "key.format" in options else None
    bad_records = values.record(BadRecordOptions)
    if value.changelog:
        bad_records.check_changes(where)
    key_fields, value_has_key = _key_fields(values, where)
    guarantee, prefix = "sink.delivery-guarantee", "sink.transactional-id-prefix"
    if values[guarantee] == "exactly-once" and not values[prefix]:
        raise OptionError(f"{where}: '{guarantee}' = 'exactly-once' needs '{prefix}'")
    return values.record(
        KafkaOptions,
        topics=_topics(options, where),
        properties=client_properties(options),
        value=value,
        key=key,
        key_fields=key_fields,
        value_has_key=value_has_key,
        startup=_position(values, _STARTUP),
        bounded=_position(values, "scan.bounded"),
        bad_records=bad_records,
    )


def _topics(options: Mapping[str, str], where: str) -> tuple[str, ...]:
    topics = tuple(name.strip() for name in options.get("topic", "").split(";") if name.strip())
    pattern = options.get("topic-pattern")
    if bool(topics) == bool(pattern):
        raise OptionError(f"{where}: set either 'topic' or 'topic-pattern'")
    if pattern is not None:
        try:
            re.compile(pattern)
        except re.error as error:
            raise OptionError(f"{where}: option 'topic-pattern': '{pattern}': {error}") from None
    return topics


def _value_format(options: Mapping[str, str], where: str) -> FormatChoice:
    given = [key for key in ("format", "value.format") if key in options]
    if len(given) != 1:
        raise OptionError(f"{where}: set either 'format' or 'value.format'; one of json, csv, …")
    (key,) = given
    return _format(options, key, "" if key == "format" else "value.", where)


def _format(options: Mapping[str, str], key: str, before: str, where: str) -> FormatChoice:
    name = options[key]
    formats.format_of(name, f"{where}: {key}" if where else key)
    others = [
        other for other in options
        if any(other.startswith(f"{before}{known.name}.") for known in FORMATS
               if known.name != name)
    ]  # fmt: skip
    if others:
        raise OptionError(f"{where}: option '{others[0]}' does not apply to '{key}' = '{name}'")
    return FormatChoice.of(options, name, before)


def _key_fields(values: OptionValues, where: str) -> tuple[tuple[str, ...], bool]:
    text, prefix = values["key.fields"] or "", values["key.fields-prefix"]
    names = tuple(name.strip() for name in text.split(";") if name.strip())
    with_key = values["value.fields-include"] == "ALL"
    wrong = next((name for name in names if not name.startswith(prefix)), None)
    if wrong is not None:
        raise OptionError(
            f"{where}: option 'key.fields': '{wrong}' does not begin with the 'key.fields-prefix' "
            f"'{prefix}'"
        )
    if prefix and with_key:
        raise OptionError(
            f"{where}: with a 'key.fields-prefix', set 'value.fields-include' to 'EXCEPT_KEY'"
        )
    return names, with_key


def _position(values: OptionValues, prefix: str) -> ScanPosition:
    """A `scan.startup.mode` that is not given is None: bounded reads have another default."""
    mode = values[f"{prefix}.mode"] if f"{prefix}.mode" in values or prefix != _STARTUP else None
    at = f"{prefix}.specific-offsets"
    return ScanPosition(
        mode, _offsets(at, values[at] or ""), values[f"{prefix}.timestamp-millis"] or 0
    )


_OFFSET = re.compile(r"partition:(\d+),offset:(\d+)")


def _offsets(key: str, text: str) -> dict[int, int]:
    found = {}
    for part in filter(None, (entry.strip() for entry in text.split(";"))):
        match = _OFFSET.fullmatch(part.replace(" ", ""))
        if match is None:
            raise OptionError(
                f"option '{key}': '{part}' is not like 'partition:0,offset:42'; separate several "
                "by ';'"
            )
        found[int(match[1])] = int(match[2])
    return found


PREFIX = "properties."
SERVERS, GROUP, RESET = "bootstrap.servers", "group.id", "auto.offset.reset"
_TABLE = table_of(__package__, "properties.toml")
_JAVA_ONLY = frozenset(_TABLE["java_only"])
_VALUES: Mapping[str, Sequence[str]] = _TABLE["values"]
_LOGIN = re.compile(r"""(username|password)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'([^']*)'|([^\s;]+))""")
_PEM: Mapping[str, str] = _TABLE["pem"]
CLIENTS: Mapping[str, Mapping[str, str]] = {
    name: _TABLE[name] for name in ("consumer", "fetch", "producer")
}
"""Streamhouse's own settings of clients, by their kinds."""
_ADVICE = (
    "export the certificates as PEM, for instance with `keytool -exportcert -rfc`, and set "
    f"'{PREFIX}ssl.ca.location' to that file"
)


def client_properties(options: Mapping[str, str]) -> dict[str, str]:
    """librdkafka's configuration from a table's options; raises `OptionError`."""
    given = {
        key.removeprefix(PREFIX): value for key, value in options.items() if key.startswith(PREFIX)
    }
    config: dict[str, str] = {}
    for key, value in given.items():
        if key in _JAVA_ONLY or key in ("ssl.truststore.type", "ssl.keystore.type"):
            continue
        if key == "sasl.jaas.config":
            config.update(_login(value))
        elif key == "ssl.truststore.location":
            config["ssl.ca.location"] = _pem(given, "ssl.truststore", value)
        elif key == "ssl.keystore.location":
            config.update(_keystore(given, value))
        elif key == "ssl.endpoint.identification.algorithm":
            config[key] = _allowed(key, value or "none")
        else:
            config[_PEM.get(key, key)] = _allowed(key, value)
    return config


def _allowed(key: str, value: str) -> str:
    """The value, spelt as in `_VALUES` if the property is there; raises `OptionError`."""
    allowed = _VALUES.get(key)
    if allowed is None:
        return value
    spelt = {one.lower(): one for one in allowed}.get(value.lower(), value)
    return choice(PREFIX + key, spelt, allowed)


def _login(jaas: str) -> dict[str, str]:
    found = {}
    for name, quoted, single, bare in _LOGIN.findall(jaas):
        found[f"sasl.{name}"] = re.sub(r"\\(.)", r"\1", quoted) or single or bare
    if "sasl.username" not in found or "sasl.password" not in found:
        raise OptionError(
            f"option '{PREFIX}sasl.jaas.config' has no username and password; set "
            f"'{PREFIX}sasl.username' and '{PREFIX}sasl.password' instead"
        )
    return found


def _pem(given: Mapping[str, str], store: str, path: str) -> str:
    kind = given.get(f"{store}.type", "JKS")
    if kind.upper() != "PEM" and not path.endswith(".pem"):
        raise OptionError(f"option '{PREFIX}{store}.location' is a {kind} file; {_ADVICE}")
    return path


def _keystore(given: Mapping[str, str], path: str) -> dict[str, str]:
    kind = given.get("ssl.keystore.type", "JKS").upper()
    if kind == "PKCS12" or path.endswith((".p12", ".pfx")):
        return {"ssl.keystore.location": path}
    pem = _pem(given, "ssl.keystore", path)
    return {"ssl.certificate.location": pem, "ssl.key.location": pem}
