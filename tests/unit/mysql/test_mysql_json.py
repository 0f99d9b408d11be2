"""JSON documents of the binlog, as MySQL 9.7 logs them, and the text that its SELECT gives."""

from __future__ import annotations

import pytest

from streamhouse.connectors.mysql_cdc.binlog.format.json_binary import double_text, json_text

_DECIMAL = "0ff61c391e8000000c149aa4350dfb38d2075bcd1500000000000000000000"
_OBJECT = (
    "00040060002000010021000100220002002400020005feff0501000226000c5b0061626161c3a4070035000b190007"
    "21000925000a2d00040000040100040200000000000000f03f90eefeff00f2052a01000000ffffffffffffffff04220a"
    "5c2f"
)
_NUMBERS = "[40000, -32769, 3000000000]"


@pytest.mark.parametrize(
    ("logged", "text"),
    [
        ("", "null"),
        ("0ff6070b027ffffff3cd", "-12.50"),
        (_DECIMAL, "12345678901234567890.123456789000000000000000000000"),
        ("0ff606090080000000", "0"),
        ("0f0a0800000000001e9519", '"2015-01-15"'),
        ("0f0c08c0d4011976ff9719", '"2015-12-31 23:24:25.120000"'),
        ("02010011000f07000708080a0c4641c6a819", '["2021-02-03 04:05:06.789000"]'),
        ("0f0b080000000591cbffff", '"-838:59:59.000000"'),
        ("0f0f02cafe", '"base64:type15:yv4="'),
        ("0f0f3c" + "78" * 60, f'"base64:type15:{"eHh4" * 19}\\neHh4"'),
        (
            _OBJECT,
            '{"a": -2, "b": 1, "aa": [1.0, -70000, 5000000000, 18446744073709551615, null, true, '
            'false], "ä": "\\"\\n\\\\/"}',
        ),
        ("0b355800662deb417e", "1.5e300"),
        ("0000000400", "{}"),
        ("0200000400", "[]"),
        (
            "0203001d00070d00071100091500409c0000ff7fffff005ed0b200000000",
            "[40000, -32769, 3000000000]",
        ),
    ],
)
def test_a_document_has_the_text_of_a_select(logged: str, text: str) -> None:
    assert json_text(bytes.fromhex(logged)) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0"), (-0.0, "-0.0"), (-1.0, "-1.0"), (1e14, "100000000000000.0"), (1e15, "1e15"),
        (123456789012345.0, "123456789012345.0"), (1234567890123456.0, "1.234567890123456e15"),
        (1000000000000000.5, "1000000000000000.5"), (12345678901234567e3, "1.2345678901234567e19"),
        (1.5e-15, "0.0000000000000015"), (1e-15, "0.000000000000001"), (9.99e-16, "9.99e-16"),
        (0.000015, "0.000015"), (5e-324, "5e-324"),
        (1.7976931348623157e308, "1.7976931348623157e308"),
    ],
)  # fmt: skip
def test_a_double_has_the_text_of_a_select(value: float, text: str) -> None:
    assert double_text(value) == text


@pytest.mark.parametrize("logged", ["04ff", "0d00", "0c05ab", "0001000c"])
def test_bytes_that_are_no_document_are_an_error(logged: str) -> None:
    with pytest.raises(ValueError, match="is not a JSON document"):
        json_text(bytes.fromhex(logged))
