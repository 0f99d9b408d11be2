"""Collects the bad records that a source leaves out, until its task takes them."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from streamhouse.connectors.base import Option
from streamhouse.errors import OptionError, RecordError
from streamhouse.options import choice
from streamhouse.source import BAD_RECORDS

FAIL, SKIP, TABLE = "fail", "skip", "table"
MODES = (FAIL, SKIP, TABLE)
_MODE, _TABLE = "bad-records", "bad-records.table"
OPTIONS = (
    Option(
        _MODE, "`fail`, `skip`, `table`",
        "what happens to a record that cannot be decoded, or whose values do not fit: the query "
        "fails, or skips and counts it, or writes it into `bad-records.table`",
        FAIL,
    ),
    Option(
        _TABLE, "STRING",
        "the Paimon table that gets bad records (dead-letter table), such as `shop.bad_orders`; "
        "created if it does not exist",
    ),
)  # fmt: skip


@dataclass(frozen=True)
class BadRecordOptions:
    """What happens to bad records; `table` is set if they are written into a table."""

    mode: str = FAIL
    table: str | None = None

    @classmethod
    def parse(cls, options: Mapping[str, str], where: str) -> BadRecordOptions:
        """Raises `OptionError`."""
        mode, table = choice(_MODE, options.get(_MODE, FAIL), MODES), options.get(_TABLE)
        if (table is not None) != (mode == TABLE):
            verb = "needs" if mode == TABLE else "does not use"
            raise OptionError(f"{where}: '{_MODE}' = '{mode}' {verb} '{_TABLE}'")
        return cls(mode, table)

    def check_changes(self, where: str) -> None:
        """Raise `OptionError` if bad records of a changelog would be left out."""
        if self.mode != FAIL:
            raise OptionError(
                f"{where}: '{_MODE}' = '{self.mode}' would leave out changes of rows, so the rows "
                f"would be wrong from then on; leave it at '{FAIL}'"
            )


log = logging.getLogger("streamhouse.bad_records")

CORRECT_TABLE = "correct the table, or set its option 'bad-records' to leave such records out"
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
