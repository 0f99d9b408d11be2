"""Turns Kafka's messages into rows: the key, the value and the metadata of each."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import methodcaller
from typing import Any, Self

import numpy as np
import pyarrow as pa
from confluent_kafka import Message

from streamhouse.close_matches import nearest
from streamhouse.connectors.kafka.options import KafkaOptions
from streamhouse.connectors.specs import arrow_schema, declared_rows
from streamhouse.errors import OptionError
from streamhouse.formats.base import BadRecord
from streamhouse.source import ROW_KIND
from streamhouse.sql.plan import Column

WRITABLE = ("timestamp", "headers")
"""What a sink writes."""
_TYPES = ("NoTimestampType", "CreateTime", "LogAppendTime")


_HEADERS = pa.map_(pa.string(), pa.binary())
_PLACE = re.compile(r"topic (.*), partition (\d+), offset (\d+)")


def metadata_values(key: str, messages: Sequence[Message]) -> pa.Array:
    """The values of a metadata key."""
    kind, value_of = _VALUES[key]
    values = pa.array(map(value_of, messages), kind)
    return values.cast(pa.timestamp("ms", "UTC")) if key == "timestamp" else values


def _timestamp(message: Message) -> int | None:
    kind, timestamp = message.timestamp()
    return timestamp if kind else None


def _headers(message: Message) -> list[tuple[str, Any]]:
    return list(dict(message.headers() or []).items())


_VALUES: Mapping[str, tuple[pa.DataType, Callable[[Message], Any]]] = {
    "topic": (pa.string(), methodcaller("topic")),
    "partition": (pa.int32(), methodcaller("partition")),
    "offset": (pa.int64(), methodcaller("offset")),
    "timestamp": (pa.int64(), _timestamp),
    "timestamp-type": (pa.string(), lambda message: _TYPES[message.timestamp()[0]]),
    "headers": (_HEADERS, _headers),
    "leader-epoch": (pa.int32(), methodcaller("leader_epoch")),
}
"""The type and the value of each metadata key."""


def place(message: Message) -> str:
    """Where a message is."""
    return f"topic {message.topic()}, partition {message.partition()}, offset {message.offset()}"


def replayed_message(row: Mapping[str, Any]) -> Message:
    """A message made of a row of the dead-letter table, which has no leader epoch."""
    found = _PLACE.fullmatch(row["position"])
    assert found is not None
    timestamp = row["timestamp"]
    return Message(
        topic=found[1],
        partition=int(found[2]),
        offset=int(found[3]),
        key=row["key"],
        value=row["value"],
        headers=list(row["headers"] or []),
        timestamp=(0, 0) if timestamp is None else (1, timestamp),
    )


@dataclass(frozen=True)
class RecordLayout:
    """Which columns of a table come from the key, the value and the metadata of a message.

    `key` and `value` have the names in the records, `key_columns` those in the table.
    """

    columns: tuple[Column, ...]
    schema: pa.Schema
    key: pa.Schema
    key_columns: tuple[str, ...]
    value: pa.Schema

    @classmethod
    def of(cls, columns: Sequence[Column], options: KafkaOptions, where: str) -> Self:
        """Raises `OptionError` if the options name columns that do not exist."""
        schema = arrow_schema(columns)
        stored = [column.name for column in columns if column.metadata is None]
        wrong = next((name for name in options.key_fields if name not in stored), None)
        if wrong is not None:
            raise OptionError(
                f"{where}: option 'key.fields': there is no column '{wrong}'; "
                f"{nearest(wrong, stored)}"
            )
        if options.key is not None and not options.key_fields:
            raise OptionError(f"{where}: 'key.format' needs 'key.fields', the columns of the key")
        key = pa.schema(
            schema.field(name).with_name(name.removeprefix(options.key_prefix))
            for name in options.key_fields
        )
        of_value = [
            name for name in stored if options.value_has_key or name not in options.key_fields
        ]
        value = pa.schema([schema.field(name) for name in of_value])
        return cls(tuple(columns), schema, key, options.key_fields, value)


class Records:
    """Decodes messages.

    With `upserts`, a message is the row of its key: one without a value deletes the row, and its
    other columns are null. Else a message without a value has no row.
    """

    def __init__(self, options: KafkaOptions, layout: RecordLayout, upserts: bool = False) -> None:
        self._layout, self._upserts = layout, upserts
        self._value = options.value.decoder(layout.value)
        self._key = None if options.key is None else options.key.decoder(layout.key)
        self._needed = next(
            (
                name
                for name in layout.key_columns
                if not layout.schema.field(name).nullable and name not in layout.value.names
            ),
            None,
        )
        """A column that only keys have, and that must not be null."""
        self.changelog = upserts or options.value.changelog
        self._plain = self._key is None and not upserts and layout.value == layout.schema

    def decode(self, messages: Sequence[Message]) -> tuple[pa.RecordBatch, Sequence[BadRecord]]:
        """The rows of messages, and those that cannot be decoded, by index."""
        decoded = self._value.decode(list(map(Message.value, messages)))
        if self._plain:
            return decoded.rows, decoded.bad
        records = decoded.records
        if records is None:
            records = np.arange(decoded.rows.num_rows)
        bad = {record.index: record.reason for record in decoded.bad}
        found: dict[str, Any] = {}
        kept = np.arange(len(messages))
        if self._key is not None:
            found, kept = self._keys(messages, records, bad)
        if self._upserts:
            return self._upserted(messages, decoded.rows, records, found, kept, bad)
        # A row whose key cannot be decoded is left out.
        rows = np.flatnonzero(np.isin(records, kept))
        values = decoded.rows.take(pa.array(rows))
        return self._declared(messages, values, records[rows], found, kept), _bad(bad)

    def _keys(
        self, messages: Sequence[Message], records: Any, bad: dict[int, str]
    ) -> tuple[dict[str, Any], Any]:
        """The columns of the keys, and the indexes of the messages that they belong to.

        `records` are the messages of the values' rows. The columns of a message without a key are
        null.
        """
        assert self._key is not None
        keys = [message.key() for message in messages]
        decoded = self._key.decode(keys)
        for record in decoded.bad:
            bad.setdefault(record.index, f"key: {record.reason}")
        columns = dict(zip(self._layout.key_columns, decoded.rows.columns, strict=False))
        of = decoded.records
        if of is None:
            of = np.arange(decoded.rows.num_rows)
            if len(of) == len(keys):
                # Each message has one key.
                return columns, of
        counts = np.bincount(of, minlength=len(keys))
        for index in np.flatnonzero(counts > 1).tolist():
            bad.setdefault(index, f"key: {counts[index]} objects, but a record has one key")
        absent = np.array([key is None for key in keys], bool) & (counts == 0)
        if self._needed is not None:
            for index in np.intersect1d(np.flatnonzero(absent), records).tolist():
                reason = f"column '{self._needed}' is NOT NULL, but the record has no key"
                bad.setdefault(index, reason)
        kept = np.setdiff1d(np.flatnonzero((counts == 1) | absent), np.array(list(bad), np.int64))
        rows = pa.array(np.searchsorted(of, kept), mask=absent[kept])
        columns = {name: column.take(rows) for name, column in columns.items()}
        return columns, kept

    def _declared(
        self, messages: Sequence[Message], values: Any, records: Any, keys: Any, kept: Any
    ) -> pa.RecordBatch:
        """The table's rows, whose messages are `records`; columns of `values` come first."""
        columns = dict(zip(values.schema.names, values.columns, strict=True))
        place = pa.array(np.searchsorted(kept, records))
        others = {name: column.take(place) for name, column in keys.items() if name not in columns}
        columns |= others
        with_metadata = any(column.metadata for column in self._layout.columns)
        origins = [messages[index] for index in records.tolist()] if with_metadata else []
        return declared_rows(
            pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns)),
            self._layout.columns,
            self._layout.schema,
            lambda key: metadata_values(key, origins),
        )

    def _upserted(
        self, messages: Sequence[Message], values: Any, records: Any, keys: Any, kept: Any, bad: Any
    ) -> tuple[pa.RecordBatch, Sequence[BadRecord]]:
        """One row for each message with a key: `+U` with its value, or `-D` without one."""
        for index, message in enumerate(messages):
            if message.key() is None:
                bad.setdefault(index, "the record has no key, which upsert-kafka needs")
        deleted = np.array([message.value() is None for message in messages], bool)
        usable = np.array([row for row in kept.tolist() if row not in bad], np.int64)
        with_value = np.isin(usable, records)
        usable = usable[with_value | deleted[usable]]
        # The value's last row of each message; null for a deleted one, whose columns are then null.
        rows = pa.array(np.searchsorted(records, usable, "right") - 1, mask=deleted[usable])
        names = [name for name in values.schema.names if name not in self._layout.key_columns]
        filled = [values.column(name).take(rows) for name in names]
        kinds = pa.array(np.where(deleted[usable], "-D", "+U").tolist(), pa.string())
        own = pa.RecordBatch.from_arrays([*filled, kinds], names=[*names, ROW_KIND])
        return self._declared(messages, own, usable, keys, kept), _bad(bad)


def _bad(found: dict[int, str]) -> list[BadRecord]:
    return [BadRecord(*item) for item in sorted(found.items())]
