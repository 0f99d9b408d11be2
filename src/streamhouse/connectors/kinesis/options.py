"""The options of the `kinesis` connector, under the names of Flink's connectors 4 and 5."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias

from streamhouse.connectors.bad_records import OPTIONS as BAD_RECORDS
from streamhouse.connectors.bad_records import BadRecordOptions
from streamhouse.errors import OptionError
from streamhouse.formats.base import FormatChoice, declared_options, format_of, names
from streamhouse.options import DeclaredOptions, OptionValues, of_option

WHERE = "kinesis"
InitPosition: TypeAlias = Literal["LATEST", "TRIM_HORIZON", "AT_TIMESTAMP"]
_ARN = re.compile(r"arn:[\w-]+:kinesis:(?P<region>[\w-]*):\d*:stream/(?P<name>[\w.-]+)")
_ISO_FORMAT = "yyyy-MM-dd'T'HH:mm:ss.SSSXXX"

DECLARED = DeclaredOptions.of(__package__)
OPTIONS = (*DECLARED.options, *BAD_RECORDS, *declared_options(format_of(name) for name in names()))


@dataclass(frozen=True)
class KinesisOptions:
    """The checked options; `repr` hides the credentials.

    `init_ms`: where `AT_TIMESTAMP` begins (epoch ms). `stream`: the name or the ARN.
    """

    stream: str
    region: str | None
    init_ms: int | None
    form: FormatChoice
    bad_records: BadRecordOptions
    endpoint: str | None = of_option("aws.endpoint")
    trusts_all: bool = of_option("aws.trust.all.certificates")
    profile: str | None = of_option("aws.credentials.profile.name")
    access_key: str | None = of_option("aws.credentials.basic.accesskeyid")
    secret_key: str | None = of_option("aws.credentials.basic.secretkey")
    role: str | None = of_option("aws.credentials.role.arn")
    role_session: str = of_option("aws.credentials.role.sessionName")
    external_id: str | None = of_option("aws.credentials.role.externalId")
    init: InitPosition = of_option("source.init.position")
    discovery_ms: int = of_option("source.shard.discovery.interval")
    max_records: int = of_option("source.shard.get-records.max-record-count")
    interval_ms: int = of_option("source.shard.get-records.interval")

    @property
    def name(self) -> str:
        """The name of the stream."""
        match = _ARN.fullmatch(self.stream)
        return self.stream if match is None else match["name"]


def parse(given: Mapping[str, str], where: str = WHERE) -> KinesisOptions:
    """The checked options; raises `OptionError`."""
    options = DECLARED.current(given)
    values = OptionValues(OPTIONS, options)
    values.check(where)
    stream, region = _stream(options)
    records, shape = "source.shard.get-records.max-record-count", "source.init.timestamp.format"
    if values[records] > 10_000:
        raise OptionError(
            f"option '{records}': {values[records]} is too large; Kinesis allows 10000"
        )
    if values[shape] != _ISO_FORMAT:
        raise OptionError(
            f"option '{shape}': only the default {_ISO_FORMAT} is supported; write the "
            "timestamp in that format, or as seconds since 1970"
        )
    time = values["source.init.timestamp"]
    form, bad_records = FormatChoice.of(options, values["format"]), values.record(BadRecordOptions)
    if form.changelog:
        bad_records.check_changes(where)
    return values.record(
        KinesisOptions,
        stream=stream,
        region=region,
        init_ms=None if time is None else _timestamp_ms("source.init.timestamp", time),
        form=form,
        bad_records=bad_records,
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
