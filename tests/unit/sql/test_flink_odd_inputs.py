"""Generated expressions of odd inputs, and what Flink 1.20 answers: `fixtures/flink_odd_inputs`.

A case that differs must match a pattern of `KNOWN`; docs/reference/flink-differences.md explains
them. `scripts/flink_odd_inputs.py` asks Flink.
"""

from __future__ import annotations

import re

import duckdb
import pytest
from tests.unit.sql.odd_inputs import ERROR, Answer, cases
from tests.unit.sql.test_flink_expressions import Row

from streamhouse.errors import StreamhouseError

PART = 24
"""`make test` computes one in so many of the expressions, `make soak` all."""
_ODD_FLOAT = r"CAST\('(NaN|-?Infinity|16777217|2147483647|2147483648)'"
_OUT = r"'(0001|1582|1969|9999)-"
KNOWN = {
    "stricter": (  # null or an error for a value of Flink's, or an error for its null
        # Texts that only Flink's lenient parsers take for a time or a number.
        r"AS STRING\) AS (DATE|TIME|FLOAT|DOUBLE|DECIMAL|BOOLEAN|[A-Z]*INT)|AS STRING\) = DATE",
        r"TO_DATE|TO_TIMESTAMP|UNIX_TIMESTAMP|DATE_FORMAT|CONVERT_TZ",
        # A lost value is an error, or null by TRY_CAST.
        r"^TRY_CAST\(.* AS (TINYINT|SMALLINT|INT|BIGINT|DECIMAL\(.*\))\)$",
        r"ROUND\(CAST\('-?214748364[78]' AS INT\), -1\)",
        r"AS DECIMAL\(38, 18\)\) [-+*]|[-+*] CAST\('.*' AS DECIMAL\(38, 18\)\)",
        r"FROM_UNIXTIME|TIMESTAMPDIFF|AS BINARY\(2\)",
        # Comparisons of texts with numbers or BOOLEAN.
        r"^CAST\((NULL|'.*') AS STRING\) (>|IN|BETWEEN|=|<)|(<|>=|=) CAST\('.*' AS STRING\)",
        # Regular expressions that are not valid, null keys, JSON paths that are not valid.
        r"^REGEXP.*'(\[|\$1)'|MAP\[CAST\(NULL AS STRING\)|MAP_FROM_ARRAYS\(ARRAY\['a', 'b'\]",
        r"^JSON_.*('\$\.'|'\$\[''a'|''|'\$\.b\.c\.length\(\)')|^ELEMENT\(ARRAY_REMOVE",
    ),
    "lenient": (  # a value or null where Flink has an error, or a value for its null
        # Flink's planner does not read these numbers.
        _ODD_FLOAT,
        # Functions of a TIME or DATE, and of DOUBLE, which Flink has for other types.
        r"AS TIME\(0\)|EXTRACT\(MICROSECOND|DATE_FORMAT|CONVERT_TZ|HEX|MOD\(|%",
        r"AS TIMESTAMP\(3\)\) (<|-|=|>=|IS NOT).* AS (DATE|TIMESTAMP)|AS DATE\) (=|<|>=)",
        r"JSON_(OBJECT|STRING).*AS (DATE|TIME)",
        # A literal NULL; arguments that are not valid; a RETURNING of another type.
        r"CONCAT|ESCAPE|INSTR|FROM_BASE64|GREATEST|RETURNING|^ROW|ROW<|\[(-1|0)\]$",
        # Its own libraries are missing, or fail.
        r"\?\(@\.p\)\]\.c|MAP_FROM_ARRAYS.*\)\['|'1e-400'",
    ),
    "other": (
        # Flink counts from 1970 towards zero, and has four digits for a year.
        _OUT, r"FROM_UNIXTIME\(CAST\('-62167219201'", r"EXTRACT\(SECOND FROM CAST\('.*' AS DATE\)",
        # The sign of zero, the order of NaN, the digits of a FLOAT and of decimals.
        r"'-0\.0'|4\.9E-324|NaN", _ODD_FLOAT, r"AS FLOAT|^POWER|AS DECIMAL\(38, 18\)\)",
        # A character beyond ASCII counts as its bytes, or as two.
        r"^ASCII\(|^LPAD\(CAST\('a\U0001f600b'",
        # Java's expressions; `LIKE ''` is always true; white space in URLs.
        r"LIKE ''|(?s:REGEXP_REPLACE.*'(\.\*|\$)')|PARSE_URL",
        # The order of maps, and equal keys of MAP_FROM_ARRAYS.
        r"STR_TO_MAP|MAP_|MAP\[",
        r"DAY TO SECOND|COALESCE\(.*AS TIMESTAMP.*AS DATE|ROW\(|CEIL\(.*AS TIME\(0\)\) TO WEEK",
    ),
}  # fmt: skip


def _difference(theirs: Answer, ours: Answer) -> str:
    """The kind of a difference in `KNOWN`; empty if there is none."""
    if theirs == ours:
        return ""
    if ours is ERROR or (ours is None and theirs is not ERROR):
        return "stricter"
    return "lenient" if theirs in (None, ERROR) else "other"


def _answer(row: Row, expression: str) -> Answer:
    try:
        text = row.text(expression)
    except (StreamhouseError, duckdb.Error):
        return ERROR
    return None if text == "NULL" else text


@pytest.mark.parametrize(
    "part", [0, *(pytest.param(part, marks=pytest.mark.soak) for part in range(1, PART))]
)
def test_odd_inputs_give_what_flink_gives(part: int) -> None:
    row = Row([])
    wrong = []
    for expression, theirs in cases()[part::PART]:
        ours = _answer(row, expression)
        kind = _difference(theirs, ours)
        if kind and not any(re.search(pattern, expression) for pattern in KNOWN[kind]):
            wrong.append((kind, expression, theirs, ours))
    row.close()
    assert not wrong
