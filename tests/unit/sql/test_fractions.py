"""Fractions are cut or rounded as in Flink, also where only DuckDB knows the operand's type."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING

import duckdb
import pytest

if TYPE_CHECKING:
    from tests.unit.sql.conftest import Catalog

DOUBLE, DECIMAL = "CAST({} AS DOUBLE)", "CAST({} AS DECIMAL(6, 3))"
OPERANDS = [
    "{}",
    "ARRAY_MAX(ARRAY[{}])",
    "ARRAY_MIN(ARRAY[{}])",
    "ELEMENT(ARRAY[{}])",
    "ARRAY[{}][1]",
    "MAP['a', {}]['a']",
    "MAP_VALUES(MAP['a', {}])[1]",
    "ARRAY_REVERSE(ARRAY[{}])[1]",
    "TRUNCATE({}, 3)",
    "COALESCE({}, 1)",
]


@pytest.mark.parametrize("operand", OPERANDS)
@pytest.mark.parametrize("number", [DOUBLE, DECIMAL])
def test_a_cast_to_an_integer_cuts_the_fraction(
    catalog: Catalog, operand: str, number: str
) -> None:
    value = operand.format(number.format("2.75"))
    assert catalog.value(f"CAST({value} AS INT)") == 2
    negative = operand.format(number.format("-2.75"))
    assert catalog.value(f"CAST({negative} AS BIGINT)") == -2


@pytest.mark.parametrize("operand", OPERANDS)
def test_a_double_is_rounded_by_its_decimal_text(catalog: Catalog, operand: str) -> None:
    value = operand.format(DOUBLE.format("0.565"))
    assert catalog.value(f"CAST({value} AS DECIMAL(5, 2))") == Decimal("0.57")
    assert catalog.value(f"ROUND({value}, 2)") == 0.57


@pytest.mark.parametrize(
    ("cast", "value"),
    [
        ("CAST(ARRAY[2.75, 3.5] AS ARRAY<INT>)", [2, 3]),
        ("CAST(ARRAY[ARRAY[2.75]] AS ARRAY<ARRAY<INT>>)", [[2]]),
        ("CAST(MAP['a', -2.75] AS MAP<STRING, INT>)", {"a": -2}),
        ("CAST(ROW(2.75, TRUE) AS ROW<a INT, b STRING>)", {"a": 2, "b": "TRUE"}),
        ("CAST(ARRAY[ROW(2.75)] AS ARRAY<ROW<a INT>>)", [{"a": 2}]),
        ("CAST(ARRAY[CAST(0.565 AS DOUBLE)] AS ARRAY<DECIMAL(5, 2)>)", [Decimal("0.57")]),
        ("CAST(ARRAY[CAST(1E10 AS DOUBLE)] AS ARRAY<STRING>)", ["1.0E10"]),
        ("CAST(ARRAY['abc'] AS ARRAY<CHAR(2)>)", ["ab"]),
        ("CAST(ARRAY[TIMESTAMP '2026-01-02 03:04:05.9'] AS ARRAY<TIMESTAMP(0)>)",
         [datetime(2026, 1, 2, 3, 4, 5)]),
        ("CAST(CAST(NULL AS ARRAY<DOUBLE>) AS ARRAY<INT>)", None),
        ("CAST(CAST(NULL AS ROW<a DOUBLE>) AS ROW<a INT>)", None),
        ("CAST(CAST(NULL AS MAP<STRING, DOUBLE>) AS MAP<STRING, INT>)", None),
        ("CAST(ARRAY[CAST(NULL AS ROW<a DOUBLE>)] AS ARRAY<ROW<a INT>>)", [None]),
        ("TRY_CAST(ARRAY['1', '2'] AS ARRAY<INT>)", [1, 2]),
        ("TRY_CAST(ARRAY['1', 'x'] AS ARRAY<INT>)", None),
        ("TRY_CAST(ELEMENT(ARRAY[ARRAY['1', 'x']]) AS ARRAY<INT>)", None),
    ],
)  # fmt: skip
def test_elements_are_cast_as_values_are(catalog: Catalog, cast: str, value: object) -> None:
    assert catalog.value(cast) == value


@pytest.mark.parametrize("place", ["{}", "ELEMENT(ARRAY[{}])", "s"])
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1.999", 1), ("-1.999", -1), (" 12 ", 12), ("+5.", 5), (".5", 0), ("123", 123),
        ("", None), ("foo", None), ("1e3", None), ("0x1F", None), ("1_000", None), ("1.x", None),
        ("-", None), ("1 2", None),
    ],
)  # fmt: skip
def test_a_text_is_a_number_without_its_fraction(
    catalog: Catalog, place: str, text: str, value: int | None
) -> None:
    operand = place.format(f"'{text}'")
    assert catalog.value(f"TRY_CAST({operand} AS INT)", s=text) == value
    if value is None:
        with pytest.raises(duckdb.ConversionException):
            catalog.value(f"CAST({operand} AS BIGINT)", s=text)
    else:
        assert catalog.value(f"CAST({operand} AS BIGINT)", s=text) == value


@pytest.mark.parametrize("text", ["2021-09-27", "2021-09-27 12:34:56", "noon"])
def test_a_date_is_no_time(catalog: Catalog, text: str) -> None:
    assert catalog.value("TRY_CAST(s AS TIME)", s=text) is None
    with pytest.raises(duckdb.ConversionException):
        catalog.value("CAST(s AS TIME)", s=text)
