"""Collects the bad records that a source leaves out, until its task takes them."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from streamhouse.connectors.bad_record_options import FAIL, BadRecordOptions
from streamhouse.errors import RecordError
from streamhouse.source import BAD_RECORDS

log = logging.getLogger("streamhouse.bad_records")

CORRECT_TABLE = "correct the table, or set its option 'bad-records'"
"""What to do about a bad record that nobody can change."""


class BadRecordCollector:
    """Collects bad records, or raises `RecordError` for the first if the query is to fail.

    A source that fails passes `advice`, what to do about it.
    """

    def __init__(self, options: BadRecordOptions, advice: str) -> None:
        self._options, self._advice = options, advice
        self._found: list[Mapping[str, Any]] = []

    def add(
        self,
        position: str,
        reason: str,
        value: bytes | None,
        key: bytes | None = None,
        timestamp: int | None = None,
        headers: Iterable[tuple[str, Any]] = (),
    ) -> None:
        """Leave a record out; `position` and `timestamp` (epoch ms) are of the record."""
        if self._options.mode == FAIL:
            raise RecordError(f"{position}: {reason}; {self._advice}")
        self._found.append(
            {
                "position": position,
                "reason": reason,
                "key": key,
                "value": value,
                "timestamp": timestamp,
                "headers": list(headers),
            }
        )

    def take(self) -> pa.Table:
        """The records since the last call: rows of `BAD_RECORDS`."""
        found, self._found = self._found, []
        return pa.Table.from_pylist(found, BAD_RECORDS)


def warn_of_bad_records(count: int) -> None:
    """Warn of the bad records of a bounded read, which no dead-letter table gets."""
    if count:
        log.warning("%d bad records were left out of this SELECT", count)
