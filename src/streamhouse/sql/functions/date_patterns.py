"""Translates Java's date patterns (`yyyy-MM-dd HH:mm:ss`) to DuckDB's strftime patterns."""

from __future__ import annotations

import re

_LETTERS = {
    "yyyy": "%Y",
    "yy": "%y",
    "MMMM": "%B",
    "MMM": "%b",
    "MM": "%m",
    "M": "%-m",
    "dd": "%d",
    "d": "%-d",
    "DDD": "%j",
    "HH": "%H",
    "H": "%-H",
    "hh": "%I",
    "h": "%-I",
    "mm": "%M",
    "m": "%-M",
    "ss": "%S",
    "s": "%-S",
    "SSS": "%g",
    "SSSSSS": "%f",
    "a": "%p",
    "EEEE": "%A",
    "EEE": "%a",
    "E": "%a",
}
_PART = re.compile(r"'(?:[^']|'')*'|([A-Za-z])\1*|[^A-Za-z']+|'")


class PatternError(ValueError):
    """A pattern that is not supported; the text is the message for the user."""


def strftime(pattern: str) -> str:
    """The strftime pattern of a Java pattern; raises `PatternError`."""
    out = []
    for match in _PART.finditer(pattern):
        part = match.group()
        if match.group(1):
            if part not in _LETTERS:
                raise PatternError(
                    f"'{part}' in the pattern '{pattern}' is not supported; "
                    f"known: {' '.join(_LETTERS)}"
                )
            out.append(_LETTERS[part])
        elif part == "''":
            out.append("'")
        elif part == "'":
            raise PatternError(f"the pattern '{pattern}' has a quote that is never closed")
        else:
            text = part[1:-1].replace("''", "'") if part.startswith("'") else part
            out.append(text.replace("%", "%%"))
    return "".join(out)
