"""Errors of values, in the words of the user's SQL."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import duckdb
import pytest

from streamhouse.sql.expressions.value_errors import readable

if TYPE_CHECKING:
    from tests.unit.sql.conftest import Catalog

DUCKDB = re.compile(r"INT\d|VARCHAR|BLOB|TRY\(|Error:|DuckDB|flink_|LINE", re.IGNORECASE)


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("CAST(300 + i AS TINYINT)", "300 does not fit into TINYINT"),
        ("2147483647 + n - n + CAST(1 AS INT) + i", None),
        ("CAST(9223372036854775807 AS BIGINT) + n", "9223372036854775807 + 1 exceeds BIGINT"),
        ("CAST(s AS INT)", "'x y' is not a valid INT"),
        ("CAST(s AS DATE)", "'x y' is not a valid DATE"),
        ("CAST(s AS TIME)", "'x y' is not a valid TIME"),
        ("CAST(s AS TIMESTAMP(3))", "'x y' is not a valid TIMESTAMP"),
        ("CAST(s AS DOUBLE)", "'x y' is not a valid DOUBLE"),
        ("CAST(s AS DECIMAL(5, 2))", None),
        ("CAST(12345 + i AS DECIMAL(5, 2))", None),
        ("n / i", "Division by zero"),
        ("MOD(n, i)", None),
        ("ELEMENT(ARRAY[n, n])", "ELEMENT needs an array of at most one element"),
        ("JSON_VALUE(s, '$.a' ERROR ON ERROR)", None),
        ("ENCODE(s, 'KOI8')", "character set KOI8 is not one of US-ASCII, .*"),
    ],
)
def test_errors_do_not_mention_duckdb(
    catalog: Catalog, expression: str, message: str | None
) -> None:
    row = {"i": 0, "n": 1, "s": "x y"}
    try:
        catalog.query(f"SELECT {expression} AS v FROM typed", [row])
    except duckdb.Error as error:
        text = readable(str(error))
        assert not DUCKDB.search(text), text
        assert message is None or re.fullmatch(message.replace("+", r"\+"), text), text
    else:
        assert message is None
