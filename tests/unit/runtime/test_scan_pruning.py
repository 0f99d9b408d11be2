"""Comparisons of times with literals are pushed down to scans, also through casts."""

from __future__ import annotations

import datetime

import pyarrow as pa
import pytest

from streamhouse.paimon.read.conditions import Filter
from streamhouse.runtime.batch.scan_pruning import Pruning
from streamhouse.sql.plan import BoundedQuery, BoundedScan, TableInfo

_AT = datetime.datetime(2026, 1, 1)
_ZONED = _AT.replace(tzinfo=datetime.UTC)
_LITERAL = "CAST('2026-01-01 00:00:00' AS TIMESTAMP)"


@pytest.mark.parametrize(
    ("column", "kind", "literal"),
    [
        ("t.ts", pa.timestamp("ms"), _AT),
        ("CAST(t.ts AS TIMESTAMP)", pa.timestamp("us"), _AT),
        ("CAST(t.ts AS TIMESTAMP)", pa.timestamp("ms", "UTC"), _ZONED),
        # A cast to microseconds, a date, and a literal without a zone make other values.
        ("CAST(t.ts AS TIMESTAMP)", pa.timestamp("ns"), None),
        ("CAST(t.ts AS TIMESTAMP)", pa.string(), None),
        ("CAST(t.ts AS DATE)", pa.timestamp("ms"), None),
        ("t.ts", pa.timestamp("ms", "UTC"), None),
    ],
)
def test_times_are_compared_by_scans(
    column: str, kind: pa.DataType, literal: datetime.datetime | None
) -> None:
    scan = BoundedScan(TableInfo(("t",), ()), "scan_0", ("ts",))
    for operator, method in (("<", "lessThan"), (">=", "greaterOrEqual")):
        sql = f"SELECT t.ts FROM scan_0 AS t WHERE {column} {operator} {_LITERAL}"
        found = Pruning(BoundedQuery((scan,), sql, ("ts",))).filter(
            "scan_0", pa.schema([("ts", kind)])
        )
        expected: Filter = {"method": method, "field": "ts", "literals": [literal]}
        assert found == (None if literal is None else expected)


@pytest.mark.parametrize(
    ("condition", "found"),
    [
        ("t.day = 'a'", {"day": "a"}),
        ("'a' = t.day AND t.v > 3 AND t.n = 5", {"day": "a", "n": "5"}),
        ("t.at = CAST('2026-01-01' AS DATE) AND t.n = '05'", {}),
        ("t.day = 'a' OR t.day = 'b'", {}),
        ("t.day > 'a' AND t.n IN (5)", {}),
        ("upper(t.day) = 'A' AND t.n = t.v AND t.x = 1.5", {}),
    ],
)
def test_what_all_rows_of_a_scan_have_in_common(condition: str, found: dict[str, str]) -> None:
    scan = BoundedScan(TableInfo(("t",), ()), "scan_0", ("day",))
    sql = f"SELECT t.day FROM scan_0 AS t WHERE {condition}"
    kinds = {"day": pa.string(), "n": pa.int32(), "at": pa.date32(), "x": pa.float64()}
    pruning = Pruning(BoundedQuery((scan,), sql, ("day",)))
    assert pruning.partition("scan_0", pa.schema(list(kinds.items()))) == found
