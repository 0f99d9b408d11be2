"""The options of the `kafka` connector, under Flink's names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from streamhouse.connectors.bad_record_options import OPTIONS as BAD_RECORDS
from streamhouse.connectors.bad_record_options import BadRecordOptions
from streamhouse.connectors.base import Option
from streamhouse.connectors.kafka.properties import GROUP, PREFIX, RESET, SERVERS, client_properties
from streamhouse.errors import OptionError
from streamhouse.formats import registry as formats
from streamhouse.options import check_known, choice, duration_ms, integer

EARLIEST, LATEST, GROUPS = "earliest-offset", "latest-offset", "group-offsets"
TIMESTAMP, SPECIFIC, UNBOUNDED = "timestamp", "specific-offsets", "unbounded"
STARTUP_MODES = (EARLIEST, LATEST, GROUPS, TIMESTAMP, SPECIFIC)
BOUNDED_MODES = (UNBOUNDED, LATEST, GROUPS, TIMESTAMP, SPECIFIC)
GUARANTEES = ("exactly-once", "at-least-once", "none")
FORMATS = tuple(formats.format_of(name) for name in formats.names())
_BEFORE = ("", "key.", "value.")

CONNECTION = (
    Option(f"{PREFIX}{SERVERS}", "STRING", "the brokers, such as `kafka:9092`", required=True),
    Option(
        f"{PREFIX}*", "STRING",
        "any property of Kafka's clients, by Java's name or librdkafka's, such as "
        "`properties.security.protocol`",
    ),
    Option(
        f"{PREFIX}{GROUP}", "STRING",
        "the consumer group to which committed offsets are reported; default: none are reported",
    ),
)  # fmt: skip
SOURCE = (
    Option(
        "topic", "STRING",
        "the topic, or several separated by `;`; a sink writes into one",
    ),
    Option("topic-pattern", "STRING", "a regular expression that the names of topics match"),
    Option(
        "scan.startup.mode",
        "`group-offsets`, `earliest-offset`, `latest-offset`, `timestamp`, `specific-offsets`",
        "where a new query starts; a bounded SELECT reads from `earliest-offset` by default",
        GROUPS,
    ),
    Option(
        "scan.startup.specific-offsets", "STRING",
        "the first offsets, such as `partition:0,offset:42;partition:1,offset:300`",
    ),
    Option("scan.startup.timestamp-millis", "INT", "read records from this time on (epoch ms)"),
    Option(
        "scan.bounded.mode",
        "`unbounded`, `latest-offset`, `group-offsets`, `timestamp`, `specific-offsets`",
        "where the source ends; `latest-offset` is where the topic ends when the query starts",
        UNBOUNDED,
    ),
    Option("scan.bounded.specific-offsets", "STRING", "the offsets before which it ends"),
    Option("scan.bounded.timestamp-millis", "INT", "it ends before records of this time"),
    Option(
        "scan.topic-partition-discovery.interval", "DURATION",
        "how often new topics and partitions are looked for; `0` never", "5 min",
    ),
)  # fmt: skip
RECORDS = (
    Option("format", "STRING", "the format of values, see [Formats](#formats)"),
    Option("value.format", "STRING", "the same, if there is a `key.format`"),
    Option("key.format", "STRING", "the format of keys; default: keys are not read or written"),
    Option("key.fields", "STRING", "the columns of the key, separated by `;`"),
    Option(
        "key.fields-prefix", "STRING",
        "a prefix of the names of the key's columns, which the key's format does not see", "",
    ),
    Option(
        "value.fields-include", "`ALL`, `EXCEPT_KEY`",
        "whether the value has the columns of the key, too", "ALL",
    ),
)  # fmt: skip
SINK = (
    Option(
        "sink.partitioner", "`default`, `fixed`, `round-robin`",
        "`default`: by the hash of the key, as Kafka's own clients do, or any without a key; "
        "`fixed`: each task writes into one partition",
        "default",
    ),
    Option(
        "sink.delivery-guarantee", "`exactly-once`, `at-least-once`, `none`",
        "`exactly-once` writes in transactions, and needs `sink.transactional-id-prefix`; `none` "
        "does not wait for the brokers",
        "at-least-once",
    ),
    Option(
        "sink.transactional-id-prefix", "STRING",
        "the beginning of the ids of transactions; no other query may use it",
    ),
)  # fmt: skip
WITHOUT_EFFECT = {
    "sink.parallelism": "SET 'parallelism.default' sets the number of tasks",
    "sink.semantic": "use 'sink.delivery-guarantee'",
    "scan.parallelism": "SET 'parallelism.default' sets the number of tasks",
}


@dataclass(frozen=True)
class FormatChoice:
    """A format, its options without prefix, and that prefix for messages."""

    name: str
    options: Mapping[str, str]
    prefix: str


@dataclass(frozen=True)
class ScanPosition:
    """Where reading starts or ends.

    `mode` is one of `STARTUP_MODES` or `BOUNDED_MODES`; None: it is not set. `offsets`, by
    partition, are those of `specific-offsets`, `timestamp_ms` (epoch ms) is that of `timestamp`.
    """

    mode: str | None
    offsets: Mapping[int, int] = field(default_factory=dict)
    timestamp_ms: int = 0


@dataclass(frozen=True)
class KafkaOptions:
    """The options of a `kafka` table, checked; `repr` hides the clients' properties."""

    topics: tuple[str, ...]
    pattern: str | None
    properties: Mapping[str, str] = field(repr=False)
    value: FormatChoice
    key: FormatChoice | None
    key_fields: tuple[str, ...]
    key_prefix: str
    value_has_key: bool
    startup: ScanPosition
    bounded: ScanPosition
    discovery_ms: int
    partitioner: str
    guarantee: str
    transactions: str | None
    bad_records: BadRecordOptions

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

    def for_bounded_read(self) -> KafkaOptions:
        """The options of a read that ends: by default, from the beginning to the current end."""
        startup = self.startup if self.startup.mode is not None else ScanPosition(EARLIEST)
        bounded = self.bounded if self.is_bounded else ScanPosition(LATEST)
        return replace(self, startup=startup, bounded=bounded)


def known_keys() -> list[str]:
    """Every option key, apart from `properties.*`."""
    own = [option.key for option in (*CONNECTION, *SOURCE, *RECORDS, *SINK, *BAD_RECORDS)]
    of_formats = [
        option.key for before in _BEFORE for option in formats.declared_options(FORMATS, before)
    ]
    return [*own, *of_formats]


def parse(options: Mapping[str, str], where: str) -> KafkaOptions:
    """Check the options of a table; raises `OptionError`. `where` begins messages."""
    plain = [key for key in options if not key.startswith(PREFIX)]
    check_known(plain, known_keys(), where)
    if not options.get(PREFIX + SERVERS):
        raise OptionError(f"{where}: option '{PREFIX}{SERVERS}' is missing; set it to the brokers")
    topics, pattern = _topics(options, where)
    value = _value_format(options, where)
    key = _format(options, "key.format", "key.", where) if "key.format" in options else None
    bad_records = BadRecordOptions.parse(options, where)
    if formats.format_of(value.name).changelog:
        bad_records.check_changes(where)
    key_fields, key_prefix, value_has_key = _key_fields(options, key, where)
    partitioner, guarantee, transactions = _sink(options, where)
    return KafkaOptions(
        topics=topics,
        pattern=pattern,
        properties=client_properties(options),
        value=value,
        key=key,
        key_fields=key_fields,
        key_prefix=key_prefix,
        value_has_key=value_has_key,
        startup=_startup(options, where),
        bounded=_bounded(options, where),
        discovery_ms=duration_ms(_DISCOVERY, options.get(_DISCOVERY, "5 min")),
        partitioner=partitioner,
        guarantee=guarantee,
        transactions=transactions,
        bad_records=bad_records,
    )


_DISCOVERY = "scan.topic-partition-discovery.interval"


def _topics(options: Mapping[str, str], where: str) -> tuple[tuple[str, ...], str | None]:
    topics = tuple(name.strip() for name in options.get("topic", "").split(";") if name.strip())
    pattern = options.get("topic-pattern")
    if bool(topics) == bool(pattern):
        raise OptionError(f"{where}: set either 'topic' or 'topic-pattern'")
    if pattern is not None:
        try:
            re.compile(pattern)
        except re.error as error:
            raise OptionError(f"{where}: option 'topic-pattern': '{pattern}': {error}") from None
    return topics, pattern


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
    return FormatChoice(name, formats.format_options(options, name, before), f"{before}{name}.")


def _key_fields(
    options: Mapping[str, str], key: FormatChoice | None, where: str
) -> tuple[tuple[str, ...], str, bool]:
    names = tuple(text.strip() for text in options.get("key.fields", "").split(";") if text.strip())
    prefix = options.get("key.fields-prefix", "")
    include = choice(
        "value.fields-include", options.get("value.fields-include", "ALL"), ("ALL", "EXCEPT_KEY")
    )
    if key is None and (names or prefix):
        raise OptionError(f"{where}: 'key.fields' and 'key.fields-prefix' need a 'key.format'")
    wrong = next((name for name in names if not name.startswith(prefix)), None)
    if wrong is not None:
        raise OptionError(
            f"{where}: option 'key.fields': '{wrong}' does not begin with the 'key.fields-prefix' "
            f"'{prefix}'"
        )
    if prefix and include == "ALL":
        raise OptionError(
            f"{where}: with a 'key.fields-prefix', set 'value.fields-include' to 'EXCEPT_KEY'"
        )
    return names, prefix, include == "ALL"


def _startup(options: Mapping[str, str], where: str) -> ScanPosition:
    mode = options.get("scan.startup.mode")
    if mode is not None:
        choice("scan.startup.mode", mode, STARTUP_MODES)
    return _position(options, "scan.startup", mode, where)


def _bounded(options: Mapping[str, str], where: str) -> ScanPosition:
    mode = choice("scan.bounded.mode", options.get("scan.bounded.mode", UNBOUNDED), BOUNDED_MODES)
    return _position(options, "scan.bounded", mode, where)


def _position(
    options: Mapping[str, str], prefix: str, mode: str | None, where: str
) -> ScanPosition:
    """A mode with the options that it needs; those of other modes must not be set."""
    needed = {TIMESTAMP: f"{prefix}.timestamp-millis", SPECIFIC: f"{prefix}.specific-offsets"}
    for other, key in needed.items():
        if (key in options) != (mode == other):
            verb = "needs" if mode == other else "does not use"
            raise OptionError(f"{where}: '{prefix}.mode' = '{mode}' {verb} '{key}'")
    offsets = _offsets(needed[SPECIFIC], options[needed[SPECIFIC]]) if mode == SPECIFIC else {}
    timestamp = (
        integer(needed[TIMESTAMP], options[needed[TIMESTAMP]], 0) if mode == TIMESTAMP else 0
    )
    return ScanPosition(mode, offsets, timestamp)


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


def _sink(options: Mapping[str, str], where: str) -> tuple[str, str, str | None]:
    partitioner = choice(
        "sink.partitioner", options.get("sink.partitioner", "default"),
        ("default", "fixed", "round-robin"),
    )  # fmt: skip
    key = "sink.delivery-guarantee"
    guarantee = choice(key, options.get(key, "at-least-once"), GUARANTEES)
    prefix = options.get("sink.transactional-id-prefix")
    if guarantee == "exactly-once" and not prefix:
        raise OptionError(f"{where}: '{key}' = 'exactly-once' needs 'sink.transactional-id-prefix'")
    return partitioner, guarantee, prefix
