"""Decodes text of MySQL's character sets exactly as the server itself converts it.

Python's codecs and the server disagree on hundreds of characters, and so do different servers.
So the server converts the texts (docs/decisions/222-values-of-mysql.md). Only the
Unicode encodings are decoded without it."""

import functools
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any

from pymysql.charset import charset_by_id
from pymysql.converters import escape_string

from streamhouse.errors import ConnectError
from streamhouse.mysql.connection import Session
from streamhouse.mysql.options import MySqlOptions
from streamhouse.mysql.values.byte_values import UNICODE, unicode_text, utf8_text

_Select = Callable[[bytes], list[tuple[bytes, ...]]]

_MOST_BYTES = 256 << 10
"""How many bytes one SELECT converts, unless one text is longer."""
_SEPARATORS = [bytes([code]) for code in range(1, 9)]
"""Bytes that are the same character in each set that the server decodes, and no part of others."""
_INVALID = "(error 3854)"
"""MySQL's error for bytes that are not text of the character set; to MariaDB, they are `?`."""


class Charsets:
    """Decodes by a server's character sets; `select`: runs a SELECT there, and returns bytes."""

    def __init__(self, select: _Select) -> None:
        self._select = select

    def texts(self, charset: str, encoded: Sequence[bytes], key: bool = False) -> list[str]:
        """The texts of some values of a character set.

        Raises `ValueError` for bytes that are not text, with `key` also for bytes whose text has
        other bytes, too.
        """
        if charset in UNICODE:
            return [unicode_text(charset, raw, key) for raw in encoded]
        return [text for some in _portions(encoded) for text in self._converted(charset, some, key)]

    def _converted(self, charset: str, encoded: Sequence[bytes], key: bool) -> list[str]:
        data = b"".join(encoded)
        separator = next((one for one in _SEPARATORS if one not in data), None)
        if separator is None and len(encoded) > 1:
            return [text for raw in encoded for text in self._converted(charset, [raw], key)]
        # A byte after the last text, too: without one, the server leaves out a part of a character.
        joined = b"".join(raw + (separator or b"") for raw in encoded)
        try:
            ((texts, again),) = self._select(_statement(charset, joined))
        except ConnectError as error:
            if _INVALID not in str(error):
                raise
            raise ValueError(f"it is not text of {charset}: {error}") from None
        if key and again != joined:
            others = again.split(separator)
            pairs = zip(encoded, others, strict=False)
            raw = next((raw for raw, other in pairs if raw != other), encoded[-1])
            raise ValueError(f"{raw[:40].hex()} is not the only {charset} of its text")
        found = [texts] if separator is None else texts.split(separator)[:-1]
        if len(found) != len(encoded):
            raise ValueError(f"a value is not text of {charset}")
        return [utf8_text(text) for text in found]


@functools.cache
def _charsets(process: int, options: MySqlOptions) -> Charsets:
    def select(statement: bytes) -> list[tuple[bytes, ...]]:
        with closing(Session(options)) as session:
            return session.rows(statement, raw=True)

    return Charsets(select)


def charsets_of(options: MySqlOptions) -> Charsets:
    """The decoder of texts of the server, kept in this process."""
    # One copy for all tables of the server.
    return _charsets(os.getpid(), options.of("", ""))


def _portions(encoded: Sequence[bytes]) -> Iterator[list[bytes]]:
    """The values in lists for one SELECT each."""
    values: list[bytes] = []
    size = 0
    for raw in encoded:
        values.append(raw)
        size += len(raw)
        if size >= _MOST_BYTES:
            yield values
            values, size = [], 0
    if values:
        yield values


def _statement(charset: str, text: bytes) -> bytes:
    """The SELECT that converts a text to UTF-8, and back to bytes of the character set."""
    # Not in hexadecimal: a long text could be longer than the server's longest statement.
    literal = f"_{charset}'{escape_string(text.decode('latin-1'))}'"
    columns = f"CONVERT(s USING utf8mb4), CAST({_again('s', charset)} AS BINARY)"
    return f"SELECT {columns} FROM (SELECT {literal} s) encoded".encode("latin-1")


def _again(text: str, charset: str) -> str:
    return f"CONVERT(CONVERT({text} USING utf8mb4) USING {charset})"


def same_bytes(text: str, charset: str) -> str:
    """The SQL condition that converting a text to Unicode and back gives the same bytes."""
    return f"CAST({_again(text, charset)} AS BINARY) = CAST({text} AS BINARY)"


_NUMBERS = {
    "ucs2": "35 90 128-159 640-671 2560-2815",
    "utf16": "54-55 101-124 672-703 2816-3071",
    "utf16le": "56 62",
    "utf32": "60-61 160-191 736-767 3072-3327",
    "utf8mb3": "33 76 83 192-223 576-607 2048-2303",
    "utf8mb4": "45-46 224-247 255-323 608-639 2304-2559",
}
"""The numbers of Unicode collations, of which PyMySQL does not know all."""
_NOPAD = 1024
"""MariaDB numbers the NOPAD variant of a collation so much higher."""
_FIRST_UCA = 2048


def _by_number() -> dict[int, str]:
    charsets: dict[int, str] = {}
    for charset, ranges in _NUMBERS.items():
        for part in ranges.split():
            first, _, last = part.partition("-")
            charsets.update(dict.fromkeys(range(int(first), int(last or first) + 1), charset))
    return charsets


_UNICODE_CHARSETS = _by_number()


def charset_of(collation: int) -> str | None:
    """The character set of a collation, by its number; None if it is not known."""
    if _NOPAD <= collation < _FIRST_UCA:
        collation -= _NOPAD
    if collation in _UNICODE_CHARSETS:
        return _UNICODE_CHARSETS[collation]
    find: Any = charset_by_id
    try:
        return str(find(collation).name)
    except KeyError:
        return None
