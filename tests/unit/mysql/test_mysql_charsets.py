"""Character sets without a server: the Unicode encodings, and gb18030, which MariaDB lacks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamhouse.mysql.charsets import Charsets
from streamhouse.mysql.values.unicode import (
    UNICODE,
    unicode_decoder,
    utf8_text,
)

_PYTHONS = {"utf16": "utf-16-be", "utf16le": "utf-16-le", "utf32": "utf-32-be"}


@pytest.mark.parametrize("charset", sorted(UNICODE))
@given(text=st.text(), key=st.booleans())
def test_unicode_texts(charset: str, text: str, key: bool) -> None:
    if charset == "ucs2":
        text = "".join(char for char in text if char < "\U00010000")
    data = text.encode(_PYTHONS.get(charset, "utf-16-be" if charset == "ucs2" else "utf-8"))
    assert unicode_decoder(charset, key)(data) == text


@pytest.mark.parametrize(
    ("charset", "data", "text"),
    [
        ("utf8mb4", b"a\xed\xa0\x80b", "a?b"),
        ("utf8mb3", b"\xed\xa0\xbd\xed\xb8\x80", "??"),
        ("ucs2", b"\xd8\x3d\xde\x00\0a", "??a"),
        ("ucs2", b"\0a\xdc\x00", "a?"),
        ("utf16", b"\xd8\x3d\xde\x00", "😀"),
        ("utf16", b"\xdc\x00\0a", "?a"),
        ("utf32", b"\0\0\xd8\0\0\0\0a", "?a"),
    ],
)
def test_halves_of_surrogate_pairs(charset: str, data: bytes, text: str) -> None:
    assert unicode_decoder(charset, False)(data) == text
    if "?" in text:
        with pytest.raises(ValueError, match="surrogate|codec can't decode"):
            unicode_decoder(charset, True)(data)


@pytest.mark.parametrize("data", [b"\xff", b"a\xc3", b"\xf4\x90\x80\x80", b"\xed\xa0"])
def test_bytes_that_are_no_utf8(data: bytes) -> None:
    with pytest.raises(ValueError, match="decode"):
        utf8_text(data)


def _mysql(statement: str) -> list[tuple[object, ...]]:
    """Answers as MySQL would, with Python's gb18030."""
    if "n < 256" in statement:
        codes = [bytes([byte]) for byte in range(128)]
    elif "39420" in statement:
        codes = [
            bytes([129 + n // 12600, 48 + n // 1260 % 10, 129 + n // 10 % 126, 48 + n % 10])
            for n in range(39420)
        ]
    else:
        codes = [n.to_bytes(2, "big") for n in range(0x8000, 0x10000)]
    rows: list[tuple[object, ...]] = []
    for code in codes:
        text = code.decode("gb18030", "replace")
        known = len(text) == 1 and text != "\ufffd"
        rows.append((code.hex().upper(), text if known else "?", "1" if known else "0"))
    return rows


@given(text=st.text())
def test_gb18030_of_any_length(text: str) -> None:
    assert _GB18030(text.encode("gb18030")) == text.replace("\ufffd", "?")


_GB18030 = Charsets(_mysql).decoder("gb18030")


def test_a_key_is_refused_if_its_text_has_other_bytes_too() -> None:
    def latin(statement: str) -> list[tuple[object, ...]]:
        return [(f"{n:02X}", chr(n) if n < 129 else "?", "1" if n < 129 else "0")
                for n in range(256)]  # fmt: skip

    charsets = Charsets(latin)
    assert charsets.decoder("cp1250")(b"a\x80\x81\x82?") == "a\x80???"
    key = charsets.decoder("cp1250", key=True)
    assert key(b"a\x80?") == "a\x80?"
    with pytest.raises(ValueError, match="6181 is not the only cp1250 of its text"):
        key(b"a\x81")
