"""The interface of formats: records as bytes, rows as Arrow columns.

A record is what a message of Kafka, or a line of a file, holds: bytes, or None for a message
without a value. Options have Flink's names without the format's prefix: `ignore-parse-errors` is
`json.ignore-parse-errors` in a table over `'format' = 'json'`, and `value.json.ignore-parse-errors`
over `'value.format' = 'json'`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from streamhouse.errors import RecordError as RecordError
from streamhouse.options import Option


@dataclass(frozen=True)
class BadRecord:
    """A record that could not be decoded: its index in the decoded sequence, and the reason."""

    index: int
    reason: str


@dataclass(frozen=True)
class Decoded:
    """The rows of a sequence of records, in order.

    `rows` have the decoder's columns and, for a changelog, a last column `rowkind`. `records` has
    for each row the index of its record; None: row `i` is that of record `i`. A record can have no
    row (a message without a value), or several (an update of debezium-json).
    """

    rows: pa.RecordBatch
    records: np.ndarray[Any, np.dtype[np.int64]] | None = None
    bad: Sequence[BadRecord] = field(default_factory=tuple)


class Decoder(Protocol):
    """Decodes records; not thread-safe, and picklable before the first use."""

    @property
    def changelog(self) -> bool:
        """Whether rows can be other than inserts; `Decoded.rows` then end with `rowkind`."""

    def decode(self, records: Sequence[bytes | None]) -> Decoded:
        """The rows of the records; never raises for the contents of a record."""


class Encoder(Protocol):
    """Encodes rows; not thread-safe, and picklable before the first use."""

    @property
    def changelog(self) -> bool:
        """Whether the records express updates and deletes; else all rows must be inserts."""

    def encode(self, rows: pa.RecordBatch) -> pa.BinaryArray:
        """One record for each row, which may have a last column `rowkind`; null for no record.

        Raises `RecordError` for a value that the format cannot express.
        """


class Format:
    """A format by its Flink name; a subclass overrides what it can do.

    `where` is the prefix of its options for messages, such as `value.json.`.
    """

    name: str
    options: tuple[Option, ...] = ()
    changelog: bool = False
    """Whether its records express updates and deletes."""

    def decoder(self, schema: pa.Schema, options: Mapping[str, str], where: str) -> Decoder:
        """A decoder of rows with these columns; raises `OptionError`."""
        raise NotImplementedError

    def encoder(self, schema: pa.Schema, options: Mapping[str, str], where: str) -> Encoder:
        """An encoder of rows with these columns; raises `OptionError`."""
        raise NotImplementedError
