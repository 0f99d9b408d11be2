"""Decodes text of MySQL's character sets exactly as the server itself converts it.

Python's codecs and the server disagree on hundreds of characters, and so do different servers.
So each process queries the server once for the text of each byte sequence of a character set
(docs/decisions/139-charsets-as-the-server-has-them.md). Only the Unicode encodings are decoded
without the server."""

from __future__ import annotations

import codecs
import functools
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

from streamhouse.mysql.connection import Session
from streamhouse.mysql.options import MySqlOptions
from streamhouse.mysql.values.unicode import UNICODE, Decode, unicode_decoder

_Select = Callable[[str], list[tuple[object, ...]]]
_Ranges = Sequence[tuple[int, int]]
_Sequence = Sequence[_Ranges]

_SINGLE_BYTE = frozenset(
    {
        "armscii8", "ascii", "cp1250", "cp1251", "cp1256", "cp1257", "cp850", "cp852", "cp866",
        "dec8", "geostd8", "greek", "hebrew", "hp8", "keybcs2", "koi8r", "koi8u", "latin1",
        "latin2", "latin5", "latin7", "macce", "macroman", "swe7", "tis620",
    }
)  # fmt: skip
_EUC: _Ranges = ((0xA1, 0xFE),)
_SHIFTED: tuple[_Sequence, ...] = ((((0x81, 0x9F), (0xE0, 0xFC)), ((0x40, 0x7E), (0x80, 0xFC))),)
_JAPANESE: tuple[_Sequence, ...] = (
    (_EUC, _EUC),
    (((0x8E, 0x8E),), ((0xA0, 0xDF),)),
    (((0x8F, 0x8F),), _EUC, _EUC),
)
_FOUR_BYTES: _Sequence = (
    ((0x81, 0xFE),), ((0x30, 0x39),), ((0x81, 0xFE),), ((0x30, 0x39),),
)  # fmt: skip
_MULTI_BYTE: Mapping[str, tuple[_Sequence, ...]] = {
    "big5": ((((0xA1, 0xF9),), ((0x40, 0x7E), (0xA1, 0xFE))),),
    "cp932": _SHIFTED,
    "eucjpms": _JAPANESE,
    "euckr": ((((0x81, 0xFE),), ((0x41, 0x5A), (0x61, 0x7A), (0x81, 0xFE))),),
    "gb18030": ((((0x81, 0xFE),), ((0x40, 0x7E), (0x80, 0xFE))), _FOUR_BYTES),
    "gb2312": ((((0xA1, 0xF7),), _EUC),),
    "gbk": ((((0x81, 0xFE),), ((0x40, 0x7E), (0x80, 0xFE))),),
    "sjis": _SHIFTED,
    "ujis": _JAPANESE,
}
KNOWN = frozenset({*_SINGLE_BYTE, *_MULTI_BYTE, *UNICODE})
"""The character sets that can be decoded exactly."""

_NO_CHARACTER = "\ufffe"
"""Marks a byte without a character in a table of `codecs.charmap_decode`."""
_FIRST_SUPPLEMENTARY = bytes.fromhex("90308130")


class Charsets:
    """The decoders of a server's character sets; `select` runs a SELECT on the server."""

    def __init__(self, select: _Select) -> None:
        self._select = select
        self._maps: dict[str, _Map] = {}

    def decoder(self, charset: str, key: bool = False) -> Decode:
        """The decoder of a character set in `KNOWN`.

        With `key`, it raises `ValueError` for bytes whose text also has other bytes.
        """
        if charset in UNICODE:
            return unicode_decoder(charset, key)
        if charset not in self._maps:
            self._maps[charset] = _Map.of(charset, self._select)
        known = self._maps[charset]
        decode = known.single_bytes() if charset in _SINGLE_BYTE else known.sequences()
        return known.for_keys(decode) if key and known.inexact else decode


@functools.cache
def _charsets(process: int, options: MySqlOptions) -> Charsets:
    def select(statement: str) -> list[tuple[object, ...]]:
        with closing(Session(options)) as session:
            return session.rows(statement)

    return Charsets(select)


def charsets_of(options: MySqlOptions) -> Charsets:
    """The decoders of the server's character sets, kept in this process."""
    # One copy for all tables of the server.
    return _charsets(os.getpid(), replace(options, database="", table=""))


@dataclass(frozen=True)
class _Map:
    """The texts of all byte sequences of a character set.

    `inexact`: the sequences to which the server does not convert their text back.
    """

    charset: str
    texts: Mapping[bytes, str]
    inexact: frozenset[bytes]

    @staticmethod
    def of(charset: str, select: _Select) -> _Map:
        texts: dict[bytes, str] = {}
        inexact: set[bytes] = set()
        for statement in _statements(charset):
            for code, text, exact in select(statement):
                if text is None:
                    continue
                sequence = bytes.fromhex(str(code))
                texts[sequence] = str(text)
                if exact != "1":
                    inexact.add(sequence)
        shape = _shape(charset)
        # The server truncates or splits numbers that are not one character of the set.
        whole = {seq: text for seq, text in texts.items() if seq and shape.fullmatch(seq)}
        return _Map(charset, whole, frozenset(inexact & whole.keys()))

    def single_bytes(self) -> Decode:
        table = "".join(self.texts.get(bytes([byte]), _NO_CHARACTER) for byte in range(256))
        return lambda data: codecs.charmap_decode(data, "strict", table)[0]

    def sequences(self) -> Decode:
        find = _shape(self.charset).findall
        text_of = self.texts.__getitem__
        beyond = self.charset == "gb18030"

        def decode(data: bytes) -> str:
            if data.isascii():
                return data.decode("ascii")
            try:
                return "".join(map(text_of, find(data)))
            except KeyError as error:
                if beyond and error.args[0] >= _FIRST_SUPPLEMENTARY:
                    return "".join(map(self._supplementary, find(data)))
                raise ValueError(f"{data[:40].hex()} is not text of {self.charset}") from None

        return decode

    def _supplementary(self, sequence: bytes) -> str:
        text = self.texts.get(sequence)
        return sequence.decode("gb18030") if text is None else text

    def for_keys(self, decode: Decode) -> Decode:
        find, inexact = _shape(self.charset).findall, self.inexact

        def exact(data: bytes) -> str:
            if inexact.isdisjoint(find(data)):
                return decode(data)
            raise ValueError(f"{data[:40].hex()} is not the only {self.charset} of its text")

        return exact


@functools.cache
def _shape(charset: str) -> re.Pattern[bytes]:
    """Matches one character."""
    sequences = [
        b"".join(b"[" + b"".join(_escaped(a, b) for a, b in part) + b"]" for part in sequence)
        for sequence in _MULTI_BYTE.get(charset, ())
    ]
    return re.compile(b"|".join([*sequences, rb"[\x00-\xff]"]))


def _escaped(first: int, last: int) -> bytes:
    return f"\\x{first:02x}-\\x{last:02x}".encode()


def _statements(charset: str) -> Iterator[str]:
    """The SELECTs of all byte sequences with their texts, at most 65,536 in each."""
    yield _statement(charset, "n", "n < 256")
    for sequence in _MULTI_BYTE.get(charset, ()):
        if len(sequence) == 4:
            # All below U+10000; those from there on have a formula.
            yield _statement(
                charset,
                "((n DIV 12600 + 129) * 256 + n DIV 1260 MOD 10 + 48) * 65536"
                " + (n DIV 10 MOD 126 + 129) * 256 + n MOD 10 + 48",
                "n < 39420",
            )
            continue
        prefix = sequence[0][0][0] << 16 if len(sequence) == 3 else 0
        yield _statement(charset, f"{prefix} + n", "n >= 32768")


_DIGIT = "(" + " UNION ALL ".join(["SELECT 0 AS n", *(f"SELECT {i}" for i in range(1, 16))]) + ")"


def _statement(charset: str, code: str, condition: str) -> str:
    numbers = (
        "SELECT ((a.n * 16 + b.n) * 16 + c.n) * 16 + d.n AS n "
        f"FROM {_DIGIT} a, {_DIGIT} b, {_DIGIT} c, {_DIGIT} d"
    )
    return (
        f"SELECT HEX(s), CONVERT(s USING utf8mb4), {same_bytes('s', charset)} "
        f"FROM (SELECT CHAR({code} USING {charset}) AS s FROM ({numbers}) numbers "
        f"WHERE {condition}) sequences WHERE s IS NOT NULL"
    )


def same_bytes(text: str, charset: str) -> str:
    """The SQL condition that converting a text to Unicode and back gives the same bytes."""
    again = f"CONVERT(CONVERT({text} USING utf8mb4) USING {charset})"
    return f"CAST({again} AS BINARY) = CAST({text} AS BINARY)"


_NUMBERS = {
    "armscii8": "32 64", "ascii": "11 65", "big5": "1 84", "binary": "63",
    "cp1250": "26 34 44 66 99", "cp1251": "14 23 50-52", "cp1256": "57 67", "cp1257": "29 58-59",
    "cp850": "4 80", "cp852": "40 81", "cp866": "36 68", "cp932": "95-96", "dec8": "3 69",
    "eucjpms": "97-98", "euckr": "19 85", "gb18030": "248-250", "gb2312": "24 86", "gbk": "28 87",
    "geostd8": "92-93", "greek": "25 70", "hebrew": "16 71", "hp8": "6 72", "keybcs2": "37 73",
    "koi8r": "7 74", "koi8u": "22 75", "latin1": "5 8 15 31 47-49 94", "latin2": "2 9 21 27 77",
    "latin5": "30 78", "latin7": "20 41-42 79", "macce": "38 43", "macroman": "39 53",
    "sjis": "13 88", "swe7": "10 82", "tis620": "18 89",
    "ucs2": "35 90 128-159 640-671 2560-2815", "ujis": "12 91",
    "utf16": "54-55 101-124 672-703 2816-3071", "utf16le": "56 62",
    "utf32": "60-61 160-191 736-767 3072-3327", "utf8mb3": "33 76 83 192-223 576-607 2048-2303",
    "utf8mb4": "45-46 224-247 255-323 608-639 2304-2559",
}  # fmt: skip
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


_CHARSETS = _by_number()


def charset_of(collation: int) -> str | None:
    """The character set of a collation, by its number; None if it is not known."""
    if _NOPAD <= collation < _FIRST_UCA:
        collation -= _NOPAD
    return _CHARSETS.get(collation)
