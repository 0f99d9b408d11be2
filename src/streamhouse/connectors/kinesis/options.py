"""The options of the `kinesis` connector, under the names of Flink's connectors 4 and 5."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, TypeAlias

from streamhouse.connectors.bad_record_options import OPTIONS as BAD_RECORDS
from streamhouse.connectors.bad_record_options import BadRecordOptions
from streamhouse.connectors.base import Option
from streamhouse.errors import OptionError
from streamhouse.options import boolean, choice, duration_ms, integer

WHERE = "kinesis"
InitPosition: TypeAlias = Literal["LATEST", "TRIM_HORIZON", "AT_TIMESTAMP"]
_POSITIONS: tuple[InitPosition, ...] = ("LATEST", "TRIM_HORIZON", "AT_TIMESTAMP")
_PROVIDERS = ("AUTO", "BASIC", "PROFILE", "ASSUME_ROLE")
_ARN = re.compile(r"arn:[\w-]+:kinesis:(?P<region>[\w-]*):\d*:stream/(?P<name>[\w.-]+)")
_ISO_FORMAT = "yyyy-MM-dd'T'HH:mm:ss.SSSXXX"
_LEAST_INTERVAL_MS = 200
"""Kinesis allows five reads a second of a shard, by all consumers together."""

OPTIONS = (
    Option("stream.arn", "STRING", "the ARN of the stream; or `stream`"),
    Option("stream", "STRING", "the name of the stream; or `stream.arn`"),
    Option(
        "aws.region", "STRING", "the region of the stream; default: that of `stream.arn`, or of AWS"
    ),
    Option("aws.endpoint", "STRING", "the URL of the service; default: that of the region"),
    Option(
        "aws.trust.all.certificates",
        "BOOLEAN",
        "whether the service's certificate is not verified, for tests",
        "false",
    ),
    Option(
        "aws.credentials.provider",
        "`AUTO`, `BASIC`, `PROFILE`, `ASSUME_ROLE`",
        "where credentials come from; `AUTO`: AWS's usual chain (environment variables, "
        "`~/.aws`, the role of the machine)",
        "AUTO",
    ),
    Option("aws.credentials.basic.accesskeyid", "STRING", "the access key of `BASIC`"),
    Option("aws.credentials.basic.secretkey", "STRING", "the secret key of `BASIC`"),
    Option("aws.credentials.profile.name", "STRING", "the profile of `PROFILE`"),
    Option("aws.credentials.role.arn", "STRING", "the role of `ASSUME_ROLE`"),
    Option("aws.credentials.role.sessionName", "STRING", "the name of its session", "streamhouse"),
    Option("aws.credentials.role.externalId", "STRING", "the external ID that its policy requires"),
    Option(
        "source.init.position",
        "`LATEST`, `TRIM_HORIZON`, `AT_TIMESTAMP`",
        "where a new query begins: with records that arrive later, with the oldest record, or at "
        "`source.init.timestamp`",
        "LATEST",
    ),
    Option(
        "source.init.timestamp",
        "STRING",
        "where `AT_TIMESTAMP` begins: `2024-05-06T07:08:09.123+00:00`, or seconds since 1970",
    ),
    Option(
        "source.shard.discovery.interval", "DURATION", "how often new shards are looked for", "10 s"
    ),
    Option(
        "source.shard.get-records.max-record-count",
        "INT",
        "the largest number of records in one read of a shard, at most 10000",
        "10000",
    ),
    Option(
        "source.shard.get-records.interval",
        "DURATION",
        "the time between two reads of a shard; at least 200 ms: Kinesis allows five a second",
        "200 ms",
    ),
    *BAD_RECORDS,
)

EARLIER = {
    "scan.stream.initpos": "source.init.position",
    "scan.stream.initpos-timestamp": "source.init.timestamp",
    "scan.stream.initpos-timestamp-format": "source.init.timestamp.format",
    "scan.shard.getrecords.maxrecordcount": "source.shard.get-records.max-record-count",
}
"""Keys of Flink's connector before release 5, with the same values as their successors."""

_EARLIER_MS = {
    "scan.shard.discovery.intervalmillis": "source.shard.discovery.interval",
    "scan.shard.getrecords.intervalmillis": "source.shard.get-records.interval",
}
"""The same, for keys whose values are milliseconds."""

_NO_EFO = "records are read by polling; enhanced fan-out is not supported"
_RETRIES = "failed requests are repeated as AWS's client does by default"
_NO_EFFECT = {
    "source.reader.type": _NO_EFO,
    "scan.stream.recordpublisher": _NO_EFO,
    "scan.shard.adaptivereads": "reads are as large as Kinesis allows",
}
_NO_EFFECT_PREFIXES = {
    "source.efo.": _NO_EFO,
    "scan.stream.efo.": _NO_EFO,
    "scan.list.shards.": _RETRIES,
    "scan.stream.describe.": _RETRIES,
    "scan.shard.getrecords.backoff.": _RETRIES,
    "scan.shard.getrecords.maxretries": _RETRIES,
    "scan.shard.getiterator.": _RETRIES,
    "scan.shard.subscribetoshard.": _NO_EFO,
    "scan.shard.registerstreamconsumer.": _NO_EFO,
}


@dataclass(frozen=True)
class KinesisOptions:
    """The checked options; `repr` hides the credentials.

    `init_ms`: where `AT_TIMESTAMP` begins (epoch ms). `stream`: the name or the ARN.
    """

    stream: str
    region: str | None = None
    endpoint: str | None = None
    verify: bool = True
    profile: str | None = None
    access_key: str | None = field(default=None, repr=False)
    secret_key: str | None = field(default=None, repr=False)
    role: str | None = None
    role_session: str = "streamhouse"
    external_id: str | None = field(default=None, repr=False)
    init: InitPosition = "LATEST"
    init_ms: int | None = None
    discovery_s: float = 10.0
    max_records: int = 10_000
    interval_s: float = 0.2
    bad_records: BadRecordOptions = field(default_factory=BadRecordOptions)

    @property
    def name(self) -> str:
        """The name of the stream."""
        match = _ARN.fullmatch(self.stream)
        return self.stream if match is None else match["name"]


def without_effect(key: str) -> str | None:
    """Why an option has no effect; None for other options."""
    if key in _NO_EFFECT:
        return _NO_EFFECT[key]
    found = (why for prefix, why in _NO_EFFECT_PREFIXES.items() if key.startswith(prefix))
    return next(found, None)


def renamed(options: Mapping[str, str]) -> dict[str, str]:
    """The options under their current names, without those that have no effect."""
    result: dict[str, str] = {}
    for key, value in options.items():
        if key in EARLIER:
            result.setdefault(EARLIER[key], value)
        elif key in _EARLIER_MS:
            result.setdefault(_EARLIER_MS[key], f"{integer(key, value, 0)} ms")
        elif without_effect(key) is None:
            result[key] = value
    return result


def parse(options: Mapping[str, str]) -> KinesisOptions:
    """The checked options, with current names; raises `OptionError`."""
    stream, region = _stream(options)
    init, init_ms = _init(options)
    records = "source.shard.get-records.max-record-count"
    most = integer(records, options.get(records, "10000"), 1)
    if most > 10_000:
        raise OptionError(f"option '{records}': {most} is too large; Kinesis allows 10000")
    trust = "aws.trust.all.certificates"
    return KinesisOptions(
        stream=stream,
        region=region,
        endpoint=options.get("aws.endpoint"),
        verify=not boolean(trust, options.get(trust, "false")),
        init=init,
        init_ms=init_ms,
        discovery_s=_duration(options, "source.shard.discovery.interval", "10 s", 1) / 1000,
        max_records=most,
        interval_s=_duration(
            options, "source.shard.get-records.interval", "200 ms", _LEAST_INTERVAL_MS
        )
        / 1000,
        bad_records=BadRecordOptions.parse(options, WHERE),
        **_credentials(options),
    )


def _stream(options: Mapping[str, str]) -> tuple[str, str | None]:
    """The name or the ARN of the stream, and its region if that is known."""
    arn, name = options.get("stream.arn"), options.get("stream")
    if (arn is None) == (name is None):
        raise OptionError(f"{WHERE}: set one of the options 'stream.arn' and 'stream'")
    region = options.get("aws.region")
    if arn is None:
        assert name is not None
        return name, region
    match = _ARN.fullmatch(arn)
    if match is None:
        raise OptionError(
            f"option 'stream.arn': '{arn}' is not the ARN of a stream; write "
            "'arn:aws:kinesis:REGION:ACCOUNT:stream/NAME'"
        )
    return arn, region or match["region"] or None


def _init(options: Mapping[str, str]) -> tuple[InitPosition, int | None]:
    key, time = "source.init.position", "source.init.timestamp"
    name = choice(key, options.get(key, "LATEST").upper(), _POSITIONS)
    (position,) = (known for known in _POSITIONS if known == name)
    shape = options.get(f"{time}.format", _ISO_FORMAT)
    if shape != _ISO_FORMAT:
        raise OptionError(
            f"option '{time}.format': only the default {_ISO_FORMAT} is supported; write the "
            "timestamp in that format, or as seconds since 1970"
        )
    if (position == "AT_TIMESTAMP") != (time in options):
        raise OptionError(f"'{key}' = 'AT_TIMESTAMP' and the option '{time}' need each other")
    return position, _timestamp_ms(time, options[time]) if time in options else None


def _timestamp_ms(key: str, value: str) -> int:
    if re.fullmatch(r"\d+(\.\d+)?", value):
        return round(float(value) * 1000)
    try:
        at = datetime.fromisoformat(value)
    except ValueError:
        at = None
    if at is None or at.tzinfo is None:
        raise OptionError(
            f"option '{key}': '{value}' is not a timestamp with a zone; write "
            "'2024-05-06T07:08:09.123+00:00', or seconds since 1970"
        )
    return round(at.timestamp() * 1000)


def _credentials(options: Mapping[str, str]) -> dict[str, str]:
    """The fields of `KinesisOptions` for credentials; refuses those of another provider."""
    key = "aws.credentials.provider"
    provider = choice(key, options.get(key, "AUTO").upper(), _PROVIDERS)
    fields = {
        "BASIC": {
            "access_key": "aws.credentials.basic.accesskeyid",
            "secret_key": "aws.credentials.basic.secretkey",
        },
        "PROFILE": {"profile": "aws.credentials.profile.name"},
        "ASSUME_ROLE": {"role": "aws.credentials.role.arn"},
    }
    optional = {
        "role_session": "aws.credentials.role.sessionName",
        "external_id": "aws.credentials.role.externalId",
    }
    wanted = fields.get(provider, {})
    for option in wanted.values():
        if option not in options:
            raise OptionError(f"{WHERE}: '{key}' = '{provider}' needs the option '{option}'")
    for option in options:
        others = {
            *optional.values(),
            *(value for each in fields.values() for value in each.values()),
        }
        mine = {*wanted.values(), *(optional.values() if provider == "ASSUME_ROLE" else ())}
        if option in others - mine:
            raise OptionError(f"option '{option}' has no effect with '{key}' = '{provider}'")
    given = {**wanted, **(optional if provider == "ASSUME_ROLE" else {})}
    return {name: options[option] for name, option in given.items() if option in options}


def _duration(options: Mapping[str, str], key: str, default: str, least: int) -> int:
    value = duration_ms(key, options.get(key, default))
    if value < least:
        raise OptionError(f"option '{key}': '{options[key]}' is too short; the least is {least} ms")
    return value
