"""Fractions are cut or rounded as in Flink, also where only DuckDB knows the operand's type."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

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
