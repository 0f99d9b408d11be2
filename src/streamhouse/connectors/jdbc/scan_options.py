"""The options of bounded reads of `jdbc` tables: how a table is read in parallel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from streamhouse.errors import OptionError
from streamhouse.options import integer

_COLUMN = "scan.partition.column"
_NUMBER = "scan.partition.num"
_LOWER = "scan.partition.lower-bound"
_UPPER = "scan.partition.upper-bound"


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
