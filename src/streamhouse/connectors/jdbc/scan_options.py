"""The options of bounded reads of `jdbc` tables: how a table is read in parallel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from streamhouse.connectors.base import Option
from streamhouse.errors import OptionError
from streamhouse.options import integer

_COLUMN = "scan.partition.column"
_NUMBER = "scan.partition.num"
_LOWER = "scan.partition.lower-bound"
_UPPER = "scan.partition.upper-bound"

SCAN_OPTIONS = (
    Option(
        _COLUMN,
        "STRING",
        "a column of numbers, dates or timestamps, by whose ranges a bounded read is split into "
        "several queries, up to eight at a time",
    ),
    Option(_NUMBER, "INT", "the number of ranges"),
    Option(
        _LOWER,
        "INT, DATE or TIMESTAMP",
        "where the first range begins; rows with smaller values are left out, as by Flink. "
        "Default, for both bounds: the column's least and greatest value, and all rows are read",
    ),
    Option(
        _UPPER,
        "INT, DATE or TIMESTAMP",
        "where the last range ends; rows with greater values are left out",
    ),
)
_STREAMED = "rows are streamed from the server, in blocks of 2 MB"
SCAN_WITHOUT_EFFECT = {"scan.fetch-size": _STREAMED, "scan.auto-commit": _STREAMED}


@dataclass(frozen=True)
class ScanOptions:
    """How to split a read; the bounds are None if the server is asked for them."""

    column: str
    number: int
    lower: str | None = None
    upper: str | None = None


def parse_scan(options: Mapping[str, str]) -> ScanOptions | None:
    """The checked options, None for a read by one query; raises `OptionError`."""
    given = [key for key in (_COLUMN, _NUMBER, _LOWER, _UPPER) if key in options]
    if not given:
        return None
    for key in (_COLUMN, _NUMBER):
        if key not in options:
            raise OptionError(f"option '{given[0]}' needs '{key}'")
    if (_LOWER in options) != (_UPPER in options):
        missing = _UPPER if _LOWER in options else _LOWER
        raise OptionError(f"option '{given[-1]}' needs '{missing}'; or leave out both bounds")
    number = integer(_NUMBER, options[_NUMBER], 1)
    return ScanOptions(options[_COLUMN], number, options.get(_LOWER), options.get(_UPPER))
