"""The character sets of MySQL's and MariaDB's collations, which the binlog names by number."""

from __future__ import annotations

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
