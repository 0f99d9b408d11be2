"""The options of the `kinesis` connector, under the names of Flink's connectors 4 and 5."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, TypeAlias

from streamhouse.connectors.bad_records import OPTIONS as BAD_RECORDS
from streamhouse.connectors.bad_records import BadRecordOptions
from streamhouse.errors import OptionError
from streamhouse.options import DeclaredOptions, OptionValues

WHERE = "kinesis"
InitPosition: TypeAlias = Literal["LATEST", "TRIM_HORIZON", "AT_TIMESTAMP"]
_POSITIONS: tuple[InitPosition, ...] = ("LATEST", "TRIM_HORIZON", "AT_TIMESTAMP")
_ARN = re.compile(r"arn:[\w-]+:kinesis:(?P<region>[\w-]*):\d*:stream/(?P<name>[\w.-]+)")
_ISO_FORMAT = "yyyy-MM-dd'T'HH:mm:ss.SSSXXX"
_LEAST_INTERVAL_MS = 200
"""Kinesis allows five reads a second of a shard, by all consumers together."""

DECLARED = DeclaredOptions.of(__package__)
OPTIONS = (*DECLARED.options, *BAD_RECORDS)


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


def parse(options: Mapping[str, str]) -> KinesisOptions:
    """The checked options, with current names; raises `OptionError`."""
    values = OptionValues(OPTIONS, options)
    stream, region = _stream(options)
    init, init_ms = _init(values)
    records = "source.shard.get-records.max-record-count"
    most = values.integer(records, 1)
    if most > 10_000:
        raise OptionError(f"option '{records}': {most} is too large; Kinesis allows 10000")
    return KinesisOptions(
        stream=stream,
        region=region,
        endpoint=options.get("aws.endpoint"),
        verify=not values.boolean("aws.trust.all.certificates"),
        init=init,
        init_ms=init_ms,
        discovery_s=values.duration_ms("source.shard.discovery.interval", 1) / 1000,
        max_records=most,
        interval_s=values.duration_ms("source.shard.get-records.interval", _LEAST_INTERVAL_MS)
        / 1000,
        bad_records=BadRecordOptions.parse(options, WHERE),
        **_credentials(values),
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


def _init(values: OptionValues) -> tuple[InitPosition, int | None]:
    key, time = "source.init.position", "source.init.timestamp"
    name, options = values.choice(key), values.given
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


def _credentials(values: OptionValues) -> dict[str, str]:
    """The fields of `KinesisOptions` for credentials; refuses those of another provider."""
    key = "aws.credentials.provider"
    provider, options = values.choice(key), values.given
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
