"""Divisions of decimals: Flink's types, and each digit as Python's decimals have it."""

from __future__ import annotations

import random
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import TYPE_CHECKING, Any

import duckdb
import pytest
from sqlglot import exp

from streamhouse.errors import UnsupportedSqlError
from streamhouse.sql.expressions.binder import generate
from streamhouse.sql.expressions.numbers import _quotient, result_type
from streamhouse.sql.expressions.value_errors import readable

if TYPE_CHECKING:
    from tests.unit.sql.conftest import Catalog

TABLES = """
CREATE TABLE shares (k INT, m DECIMAL(10, 2), n BIGINT, i INT, r DOUBLE, s STRING);
CREATE TABLE parts (k INT, share DECIMAL(18, 6));
CREATE TABLE totals (k INT PRIMARY KEY NOT ENFORCED, total DECIMAL(38, 2))
  WITH ('merge-engine' = 'aggregation', 'fields.total.aggregate-function' = 'sum');
"""
EXACT = Context(prec=200)
ROW: dict[str, Any] = {"k": 1, "m": Decimal("12.34"), "n": 3, "i": -7, "r": 2.5}


@pytest.fixture
def shares(catalog: Catalog) -> Catalog:
    catalog.add(TABLES)
    return catalog


def quotient(left: Decimal, right: Decimal, scale: int) -> Decimal:
    """The quotient, rounded once."""
    return EXACT.divide(left, right).quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP, EXACT)


@pytest.mark.parametrize(
    ("one", "two", "expected"),
    [
        ((10, 2), (10, 2), (23, 13)),
        ((10, 2), (10, 0), (21, 13)),
        ((19, 0), (2, 1), (26, 6)),
        ((20, 4), (20, 4), (38, 18)),
        ((38, 4), (19, 0), (38, 6)),
        ((38, 4), (38, 4), (38, 6)),
        ((38, 18), (38, 18), (38, 6)),
        ((38, 30), (10, 0), (38, 30)),
        ((1, 0), (1, 0), (7, 6)),
    ],
)
def test_the_type_of_a_quotient_is_flinks(
    one: tuple[int, int], two: tuple[int, int], expected: tuple[int, int]
) -> None:
    assert result_type(one, two) == expected


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("m / n", "4.1133333333333333333333"),
        ("m / i", "-1.7628571428571"),
        ("n / 2.0", "1.500000"),
        ("m / m", "1.0000000000000"),
        ("2 / 3.0", "0.666667"),
        ("-2 / 3.0", "-0.666667"),
        ("CAST(1 AS DECIMAL(1, 0)) / CAST(-3 AS DECIMAL(1, 0))", "-0.333333"),
        ("CAST(1 AS DECIMAL(38, 18)) / CAST(3 AS DECIMAL(38, 18))", "0.333333"),
        ("CAST(123456789 AS DECIMAL(38, 18)) / CAST(7 AS DECIMAL(38, 18))", "17636684.142857"),
        ("(m + 1) / (n - 1)", "6.6700000000000000000000"),
        ("m / n / n", "1.371111111111111111111100000000"),
        ("CASE WHEN n > 1 THEN m ELSE 0 END / n", "4.1133333333333333333333"),
        ("m / CAST(NULL AS DECIMAL(10, 2))", "None"),
    ],
)
def test_a_quotient_has_all_its_digits(shares: Catalog, expression: str, expected: str) -> None:
    text = f"SELECT {expression} AS v FROM shares"
    (once,), (again,) = shares.query(text, [ROW]), shares.rows(text, [ROW])
    assert once == again
    assert [str(value) for value in once] == [expected]


@pytest.mark.parametrize("expression", ["r / n", "m / r", "2 / CAST(3 AS DOUBLE)", "m / 1E0"])
def test_a_decimal_with_a_double_gives_a_double(shares: Catalog, expression: str) -> None:
    ((value,),) = shares.query(f"SELECT {expression} AS v FROM shares", [ROW])
    assert isinstance(value, float)


def test_digits_are_rounded_once_and_half_up() -> None:
    rng = random.Random(7)
    kinds = [(10, 2), (20, 4), (38, 4), (38, 18), (19, 0), (5, 5), (3, 0), (18, 9)]
    with duckdb.connect(":memory:") as connection:
        for kind in kinds:
            for two in kinds:
                _check_pair(connection, rng, kind, two)


def _check_pair(
    connection: duckdb.DuckDBPyConnection,
    rng: random.Random,
    one: tuple[int, int],
    two: tuple[int, int],
) -> None:
    precision, scale = result_type(one, two)
    pairs = []
    for _ in range(20):
        left, right = _number(rng, one), _number(rng, two)
        if right and abs(quotient(left, right, scale)) < Decimal(10) ** (precision - scale):
            pairs.append((left, right))
    sql = generate(_quotient(exp.column("a"), exp.column("b"), one, two))
    values = ", ".join(
        f"(CAST('{left:f}' AS DECIMAL{one}), CAST('{right:f}' AS DECIMAL{two}))"
        for left, right in pairs
    )
    rows = connection.execute(f"SELECT {sql} FROM (VALUES {values}) AS t(a, b)").fetchall()
    assert rows == [(quotient(left, right, scale),) for left, right in pairs], (one, two)


def _number(rng: random.Random, kind: tuple[int, int]) -> Decimal:
    """A number of a type, of any length that a divisor may have."""
    digits = rng.randrange(1, min(kind[0], 17) + 1)
    return Decimal(rng.randrange(-(10**digits) + 1, 10**digits)).scaleb(-kind[1])


def test_nothing_is_divided_by_zero(shares: Catalog) -> None:
    with pytest.raises(duckdb.Error, match="[Dd]ivision by zero"):
        shares.query("SELECT m / (n - 3) AS v FROM shares", [ROW])


def test_sums_subqueries_and_names(shares: Catalog) -> None:
    text = (
        "WITH q AS (SELECT k, SUM(m) / COUNT(*) AS mean FROM shares GROUP BY k) "
        "SELECT mean / 3 AS v, (SELECT MAX(mean) / 2 FROM q) AS w FROM q GROUP BY mean / 3 "
        "HAVING mean / 3 > 1"
    )
    rows = [{"k": 1, "m": Decimal("10.00")}, {"k": 1, "m": Decimal("2.50")}]
    ((third, half),) = shares.query(text, rows)
    assert (round(third, 5), round(half, 5)) == (Decimal("2.08333"), Decimal("3.12500"))
    assert isinstance(third, Decimal)


def test_it_fits_a_decimal_column_without_a_cast(shares: Catalog) -> None:
    text = "INSERT INTO parts SELECT k, m / n FROM shares"
    assert shares.rows(text, [ROW]) == [(1, Decimal("4.113333"))]


def test_a_double_fills_a_decimal_column_rounded_by_its_decimal_text(shares: Catalog) -> None:
    row = ROW | {"r": 0.0000005}
    text = "INSERT INTO parts SELECT k, r FROM shares"
    assert shares.rows(text, [row]) == shares.query(text, [row]) == [(1, Decimal("0.000001"))]
    with pytest.raises(duckdb.Error) as caught:
        shares.rows(text, [ROW | {"r": 1e20}])
    assert readable(str(caught.value)) == "1e+20 does not fit into DECIMAL(18,6)"


def test_a_sum_of_quotients_must_be_exact(shares: Catalog) -> None:
    with pytest.raises(UnsupportedSqlError, match="a sum of type"):
        shares.stream("INSERT INTO totals SELECT k, SUM(m / n) FROM shares GROUP BY k")
    text = "INSERT INTO totals SELECT k, SUM(CAST(m / n AS DECIMAL(20, 2))) FROM shares GROUP BY k"
    assert shares.rows(text, [ROW, ROW]) == [(1, Decimal("8.22"))]


def test_a_division_of_another_type_is_an_error_with_a_position(shares: Catalog) -> None:
    with pytest.raises(UnsupportedSqlError) as caught:
        shares.bounded("SELECT\n  INTERVAL '1' DAY / m AS v FROM shares")
    assert (caught.value.line, caught.value.message) == (
        2,
        "the type of this division is unknown; CAST its operands",
    )
