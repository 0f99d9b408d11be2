"""Splits records of CSV into fields."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from typing import Any

from streamhouse.formats.csv.options import CsvOptions

_LIMIT = 1 << 27


def plain_rows(texts: Sequence[str], options: CsvOptions, width: int) -> list[list[str]] | None:
    """The fields of records without quotes and escapes; None if they need `fields_of`."""
    joined = "\n".join(texts)
    special = [mark for mark in (options.quote, options.escape, "\r") if mark is not None]
    if options.comments or any(mark in joined for mark in special):
        return None
    if joined.count("\n") != len(texts) - 1:
        return None
    rows = [text.split(options.delimiter) for text in texts]
    return rows if all(len(row) == width for row in rows) else None


def fields_of(text: str, options: CsvOptions) -> list[str] | None:
    """The fields of one record; None for a comment. Raises `ValueError`."""
    if options.comments and text.startswith("#"):
        return None
    csv.field_size_limit(_LIMIT)
    settings: dict[str, Any] = {"quoting": csv.QUOTE_NONE}
    if options.quote is not None:
        settings = {"quotechar": options.quote, "doublequote": True}
    # A line break at the end belongs to the file, not to the record.
    line = text.removesuffix("\n").removesuffix("\r")
    reader = csv.reader(
        [line], delimiter=options.delimiter, escapechar=options.escape, strict=True, **settings
    )
    try:
        rows = list(reader)
    except csv.Error as error:
        raise ValueError(f"not valid CSV: {error}") from None
    return rows[0] if rows and rows[0] else [""]
