"""Character sets without a server: the Unicode encodings, and what the server is asked."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamhouse.mysql.charsets import Charsets
from streamhouse.mysql.values.byte_values import UNICODE, unicode_text, utf8_text

_PYTHONS = {"utf16": "utf-16-be", "utf16le": "utf-16-le", "utf32": "utf-32-be"}


@pytest.mark.parametrize("charset", sorted(UNICODE))
@given(text=st.text(), key=st.booleans())
def test_unicode_texts(charset: str, text: str, key: bool) -> None:
    if charset == "ucs2":
        text = "".join(char for char in text if char < "\U00010000")
    data = text.encode(_PYTHONS.get(charset, "utf-16-be" if charset == "ucs2" else "utf-8"))
    assert unicode_text(charset, data, key) == text


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
    assert unicode_text(charset, data) == text
    if "?" in text:
        with pytest.raises(ValueError, match="surrogate|codec can't decode"):
            unicode_text(charset, data, key=True)


@pytest.mark.parametrize("data", [b"\xff", b"a\xc3", b"\xf4\x90\x80\x80", b"\xed\xa0"])
def test_bytes_that_are_no_utf8(data: bytes) -> None:
    with pytest.raises(ValueError, match="decode"):
        utf8_text(data)


def _server(statement: bytes) -> list[tuple[bytes, ...]]:
    """Answers as a server whose cp1250 has one character only, besides ASCII."""
    found = re.search(rb"SELECT _cp1250'(.*)' s", statement, re.DOTALL)
    assert found is not None
    texts = found[1].replace(b"\x80", "€".encode()).replace(b"\x81", b"?")
    return [(texts, found[1].replace(b"\x81", b"?"))]


def test_the_server_converts_many_texts_at_once() -> None:
    charsets = Charsets(_server)
    assert charsets.texts("cp1250", [b"a\x80", b"", b"\x81?"]) == ["a€", "", "??"]
    many = [b"%d\x80" % number * 9 for number in range(12_345)]
    assert charsets.texts("cp1250", many) == [f"{number}€" * 9 for number in range(12_345)]
    assert charsets.texts("cp1250", []) == []
    assert charsets.texts("cp1250", [b""]) == [""]


def test_a_text_with_all_separators_is_converted_alone() -> None:
    controls = bytes(range(1, 9))
    texts = Charsets(_server).texts("cp1250", [controls, b"a\x80"])
    assert texts == [controls.decode(), "a€"]


def test_a_key_is_refused_if_its_text_has_other_bytes_too() -> None:
    charsets = Charsets(_server)
    assert charsets.texts("cp1250", [b"a\x80?"], key=True) == ["a€?"]
    with pytest.raises(ValueError, match="6181 is not the only cp1250 of its text"):
        charsets.texts("cp1250", [b"a", b"a\x81"], key=True)
