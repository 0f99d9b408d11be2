"""Validation of view names and texts that come from URLs and files."""

from __future__ import annotations

import re

from streamhouse.errors import OptionError

MAX_CHARACTERS = 300

_NAME = re.compile(r"[^\x00-\x1f\x7f/\\.]+\.[^\x00-\x1f\x7f/\\]+")


def is_name(text: str) -> bool:
    """Whether a text can be `database.table`: printable, and without path separators."""
    fits = len(text) <= MAX_CHARACTERS and _NAME.fullmatch(text) is not None
    return fits and text.isprintable()


def check_name(text: str, where: str) -> None:
    """Raise `OptionError` for a text that is not `database.table`."""
    if not is_name(text):
        raise OptionError(f"{where}: '{text[:80]}' is not a name; write database.table")


def is_plain_text(text: str) -> bool:
    """Whether a text has no control characters except line ends and tabs, and no surrogates."""
    if any(c < " " and c not in "\t\n\r" for c in text):
        return False
    return not any("\ud800" <= c <= "\udfff" for c in text)
