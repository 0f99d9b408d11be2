"""A Kinesis data stream over AWS's client: its identity, its shards, and their records."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import boto3
from botocore.config import Config
from botocore.credentials import AssumeRoleCredentialFetcher, DeferredRefreshableCredentials
from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError, NoRegionError

from streamhouse.connectors.kinesis.options import KinesisOptions
from streamhouse.connectors.kinesis.rows import Record
from streamhouse.errors import ConnectError

_TIMEOUTS = Config(
    connect_timeout=5, read_timeout=20, retries={"mode": "standard", "max_attempts": 6}
)


@dataclass(frozen=True)
class StreamIdentity:
    """A stream as of now: one that is created again under the same name has another identity."""

    arn: str
    created_ms: int
    retention_ms: int

    @property
    def key(self) -> str:
        """What the offsets of a query belong to."""
        return f"{self.arn} created {self.created_ms}"


@dataclass(frozen=True)
class Shard:
    """A shard and the shards that it was split or merged from; a closed one gets no records.

    `keys`: the hash keys of its records; None: unknown.
    """

    id: str
    parents: tuple[str, ...]
    closed: bool = False
    keys: range | None = None


@dataclass(frozen=True)
class Start:
    """Where to read a shard: after a record, at it, at a time, or from the oldest record on."""

    after: int | None = None
    at: int | None = None
    time_ms: int | None = None

    def request(self) -> dict[str, Any]:
        """The parameters of GetShardIterator."""
        for where, number in (("AFTER", self.after), ("AT", self.at)):
            if number is not None:
                kind = f"{where}_SEQUENCE_NUMBER"
                return {"ShardIteratorType": kind, "StartingSequenceNumber": str(number)}
        if self.time_ms is not None:
            return {"ShardIteratorType": "AT_TIMESTAMP", "Timestamp": self.time_ms / 1000}
        return {"ShardIteratorType": "TRIM_HORIZON"}


@dataclass(frozen=True)
class RecordPage:
    """One read of a shard. `iterator` is None at the end of a closed shard."""

    records: list[Record]
    iterator: str | None
    behind_ms: int


class KinesisStream:
    """One stream; thread-safe, as AWS's clients are. Raises `ConnectError`."""

    def __init__(self, options: KinesisOptions) -> None:
        self._options = options
        key = "StreamARN" if options.stream.startswith("arn:") else "StreamName"
        self._name = {key: options.stream}
        with self._readable():
            self._client = _client(options)

    def identity(self) -> StreamIdentity:
        """The identity of the stream."""
        with self._readable():
            found = self._client.describe_stream_summary(**self._name)["StreamDescriptionSummary"]
        created: datetime = found["StreamCreationTimestamp"]
        hours: int = found["RetentionPeriodHours"]
        created_ms = round(created.timestamp() * 1000)
        return StreamIdentity(found["StreamARN"], created_ms, hours * 3_600_000)

    def shards(self) -> dict[str, Shard]:
        """All shards with records within the retention period, also closed ones, by their ids."""
        found: dict[str, Shard] = {}
        request: dict[str, Any] = dict(self._name)
        while True:
            with self._readable():
                answer = self._client.list_shards(**request)
            for shard in answer["Shards"]:
                parents = (shard.get("ParentShardId"), shard.get("AdjacentParentShardId"))
                closed = "EndingSequenceNumber" in shard["SequenceNumberRange"]
                known = tuple(parent for parent in parents if parent)
                range_ = shard["HashKeyRange"]
                keys = range(int(range_["StartingHashKey"]), int(range_["EndingHashKey"]) + 1)
                found[shard["ShardId"]] = Shard(shard["ShardId"], known, closed, keys)
            if not answer.get("NextToken"):
                return found
            request = {"NextToken": answer["NextToken"]}

    def pages(self, shard: str, start: Start) -> Iterator[RecordPage]:
        """The pages of a shard from there on; they end only with those of a closed shard."""
        client, request = self._client, {**self._name, "ShardId": shard}
        iterator = None
        while True:
            with self._readable():
                if iterator is None:
                    found = client.get_shard_iterator(**request, **start.request())
                    iterator = found["ShardIterator"]
                try:
                    page = _page(
                        client.get_records(ShardIterator=iterator, Limit=self._options.max_records)
                    )
                except client.exceptions.ExpiredIteratorException:
                    # It is older than five minutes.
                    iterator = None
                    continue
            if page.records:
                start = Start(after=page.records[-1].number)
            yield page
            if page.iterator is None:
                return
            iterator = page.iterator

    @contextmanager
    def _readable(self) -> Iterator[None]:
        """Turn the client's errors into `ConnectError`."""
        try:
            yield
        except ClientError as error:
            raise ConnectError(self._refusal(error)) from error
        except NoRegionError:
            raise ConnectError(
                f"kinesis stream {self._options.name}: no region is configured; set the option "
                "'aws.region', or use 'stream.arn'"
            ) from None
        except NoCredentialsError:
            raise ConnectError(
                f"kinesis stream {self._options.name}: there are no credentials; set "
                "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or the options 'aws.credentials.*'"
            ) from None
        except BotoCoreError as error:
            raise ConnectError(f"kinesis stream {self._options.name}: {error}") from error

    def _refusal(self, error: ClientError) -> str:
        code, message = error.response["Error"]["Code"], error.response["Error"]["Message"]
        if code == "ResourceNotFoundException":
            return (
                f"there is no Kinesis stream {self._options.name} in the region "
                f"{self._client.meta.region_name}; check 'stream.arn' or 'stream', and 'aws.region'"
            )
        return f"kinesis stream {self._options.name}: {message} ({code})"


def _page(answer: Any) -> RecordPage:
    records = [
        Record(
            int(record["SequenceNumber"]),
            round(record["ApproximateArrivalTimestamp"].timestamp() * 1000),
            record["Data"],
        )
        for record in answer["Records"]
    ]
    return RecordPage(records, answer.get("NextShardIterator"), answer.get("MillisBehindLatest", 0))


def _client(options: KinesisOptions) -> Any:
    session = boto3.session.Session(
        aws_access_key_id=options.access_key,
        aws_secret_access_key=options.secret_key,
        profile_name=options.profile,
        region_name=options.region,
    )
    if options.role is not None:
        session = _assumed(session, options)
    return session.client(
        "kinesis", endpoint_url=options.endpoint, verify=not options.trusts_all, config=_TIMEOUTS
    )


def _assumed(session: Any, options: KinesisOptions) -> Any:
    """A session with the credentials of a role, which are renewed before they expire."""
    core = session._session
    extra = {"RoleSessionName": options.role_session}
    if options.external_id is not None:
        extra["ExternalId"] = options.external_id
    fetcher = AssumeRoleCredentialFetcher(
        core.create_client, session.get_credentials(), options.role, extra
    )
    core._credentials = DeferredRefreshableCredentials(fetcher.fetch_credentials, "assume-role")
    return session
