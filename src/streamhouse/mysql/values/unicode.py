"""Decodes the Unicode encodings of MySQL, which can also contain unpaired surrogates."""

import re

_CODECS = {
    "utf8": "utf-8",
    "utf8mb3": "utf-8",
    "utf8mb4": "utf-8",
    "utf16": "utf-16-be",
    "utf16le": "utf-16-le",
    "utf32": "utf-32-be",
}
UNICODE = frozenset({*_CODECS, "ucs2"})
"""The character sets in which each text has one form."""

_SURROGATE = re.compile("[\ud800-\udfff]")
_PAIR = re.compile("[\U00010000-\U0010ffff]")


def utf8_text(data: bytes) -> str:
    """Text as the server sends it in UTF-8; an unpaired surrogate reads as `?`."""
    return unicode_text("utf8mb4", data)


def unicode_text(charset: str, data: bytes, key: bool = False) -> str:
    """Text of a character set in `UNICODE`; raises `ValueError` for invalid bytes.

    An unpaired surrogate, which is no character, reads as `?`; with `key`, it is a `ValueError`.
    """
    if charset == "ucs2":
        return _ucs2(data, key)
    codec = _CODECS[charset]
    try:
        return data.decode(codec)
    except UnicodeDecodeError:
        if key:
            raise
    return _SURROGATE.sub("?", data.decode(codec, "surrogatepass"))


def _ucs2(data: bytes, key: bool) -> str:
    """Two bytes for each character: MySQL's UCS-2 has no pairs."""
    text = data.decode("utf-16-be", "surrogatepass")
    if not _PAIR.search(text) and not _SURROGATE.search(text):
        return text
    if key:
        raise ValueError(f"{data[:40].hex()} contains surrogates, which are not characters")
    return _SURROGATE.sub("?", _PAIR.sub("??", text))
