"""Flink's functions and operators, executed, continuous and bounded alike."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import duckdb
import pytest

from streamhouse.errors import SqlError, UnsupportedSqlError
from streamhouse.sql.functions.expression_builders import ArgumentError
from streamhouse.sql.functions.java_times import parts, strftime

if TYPE_CHECKING:
    from tests.unit.sql.conftest import Catalog

ROW: dict[str, Any] = {
    "i": -7,
    "n": 3,
    "d": 2.75,
    "s": " Hello ",
    "t": datetime(2024, 2, 29, 13, 4, 5, 678000),
    "day_": date(2024, 2, 29),
    "m": Decimal("12.34"),
    "b": True,
}
CASES: list[tuple[str, object]] = [
    # whole numbers divide to whole numbers, towards zero
    ("i / 2", -3),
    ("7 / 2 * 2", 6),
    ("1 + 7 / 2", 4),
    ("n / 2.0", Decimal("1.500000")),
    ("d / 2", 1.375),
    ("(i + 1) / (n - 1)", -3),
    ("MOD(i, 4)", -3),
    ("i % 4", -3),
    ("ABS(i)", 7),
    ("ROUND(d, 1)", 2.8),
    ("FLOOR(d)", 2.0),
    ("CEIL(d)", 3.0),
    ("POWER(n, 2)", 9.0),
    ("SIGN(i)", -1),
    ("GREATEST(1, n, 2)", 3),
    ("LEAST(1, CAST(NULL AS INT))", None),
    # casts
    ("CAST(d AS INT)", 2),
    ("CAST(-d AS BIGINT)", -2),
    ("CAST(m AS INT)", 12),
    ("CAST('5' AS INT)", 5),
    ("TRY_CAST('x' AS INT)", None),
    ("CAST(b AS STRING)", "TRUE"),
    ("CAST(t AS STRING)", "2024-02-29 13:04:05.678"),
    ("CAST('abcdef' AS VARCHAR(3))", "abc"),
    ("CAST(TIMESTAMP '2024-01-02 03:04:05' AS STRING)", "2024-01-02 03:04:05"),
    ("CAST(t AS DATE)", date(2024, 2, 29)),
    ("CAST(m AS DECIMAL(10, 1))", Decimal("12.3")),
    # strings
    ("TRIM(s)", "Hello"),
    ("TRIM(LEADING 'x' FROM 'xxay')", "ay"),
    ("TRIM(TRAILING 'y' FROM 'xay')", "xa"),
    ("LTRIM(s)", "Hello "),
    ("UPPER(TRIM(s)) || '!'", "HELLO!"),
    ("LOWER(s)", " hello "),
    ("'a' || CAST(NULL AS STRING)", None),
    ("CONCAT('a', CAST(NULL AS STRING))", None),
    ("CONCAT('a', 'b', 'c')", "abc"),
    ("CONCAT_WS('-', 'a', CAST(NULL AS STRING), 'b')", "a-b"),
    ("SUBSTRING('abcdef', 2, 3)", "bcd"),
    ("SUBSTRING('abcdef' FROM 4)", "def"),
    ("SUBSTR('abcdef', -2)", "ef"),
    ("CHAR_LENGTH('äb')", 2),
    ("REPLACE('aXa', 'X', 'b')", "aba"),
    ("POSITION('c' IN 'abc')", 3),
    ("LOCATE('c', 'abc')", 3),
    ("INSTR('abc', 'c')", 3),
    ("LPAD('7', 3, '0')", "007"),
    ("LEFT('abc', 2)", "ab"),
    ("SPLIT_INDEX('a,b,c', ',', 1)", "b"),
    ("SPLIT_INDEX('a,b,c', ',', 9)", None),
    ("JSON_VALUE('{\"a\": {\"b\": 7}}', '$.a.b')", "7"),
    ("JSON_VALUE('{\"a\": [\"x\", true]}', '$.a[1]')", "true"),
    ("JSON_VALUE('{\"a\": [1]}', '$.a')", None),
    ("JSON_VALUE('{\"a\": 1}', '$.b')", None),
    ("JSON_VALUE('nothing', '$.a')", None),
    ("CONVERT_TZ('2026-01-01 00:00:00', 'UTC', 'Asia/Shanghai')", "2026-01-01 08:00:00"),
    ("CONVERT_TZ('2026-07-01 12:00:00', 'Europe/Berlin', 'UTC')", "2026-07-01 10:00:00"),
    ("CONVERT_TZ('soon', 'UTC', 'UTC')", None),
    ("REGEXP_EXTRACT('id=42', 'id=(\\d+)', 1)", "42"),
    ("REGEXP_EXTRACT('none', 'id=(\\d+)', 1)", None),
    ("REGEXP_REPLACE('a1b22', '(\\d+)', '<$1>')", "a<$1>b<$1>"),
    ("'abc' LIKE 'a%'", True),
    ("'a%c' LIKE 'a!%c' ESCAPE '!'", True),
    ("'abc' NOT LIKE '_b_'", False),
    # choices
    ("IF(i < 0, 'neg', 'pos')", "neg"),
    ("CASE WHEN n = 3 THEN 'x' ELSE 'y' END", "x"),
    ("CASE n WHEN 1 THEN 'x' END", None),
    ("COALESCE(CAST(NULL AS INT), n)", 3),
    ("IFNULL(CAST(NULL AS INT), 5)", 5),
    ("NULLIF(n, 3)", None),
    ("n IS DISTINCT FROM 3", False),
    ("CAST(NULL AS INT) IS NOT DISTINCT FROM CAST(NULL AS INT)", True),
    ("n BETWEEN 1 AND 3", True),
    ("n NOT IN (1, 2)", True),
    ("b IS TRUE", True),
    ("ARRAY['a', 'b'][1]", "a"),
    ("CARDINALITY(ARRAY[1, 2])", 2),
    # time
    ("DATE_FORMAT(t, 'yyyy-MM-dd HH:mm:ss.SSS')", "2024-02-29 13:04:05.678"),
    ("DATE_FORMAT(t, 'yyyyMMdd''T''HH')", "20240229T13"),
    ("DATE_FORMAT('2024-01-02 03:04:05', 'd.M.yy hh')", "2.1.24 03"),
    ("EXTRACT(YEAR FROM t)", 2024),
    ("EXTRACT(DAY FROM day_)", 29),
    ("EXTRACT(DOW FROM t)", 5),
    ("HOUR(t)", 13),
    ("DAYOFWEEK(day_)", 5),
    ("QUARTER(t)", 1),
    ("TO_TIMESTAMP('2024-01-02 03:04:05')", datetime(2024, 1, 2, 3, 4, 5)),
    ("TO_TIMESTAMP('02.01.2024', 'dd.MM.yyyy')", datetime(2024, 1, 2)),
    ("TO_TIMESTAMP('rubbish')", None),
    ("TO_DATE('2024-01-02')", date(2024, 1, 2)),
    ("TIMESTAMPDIFF(DAY, TIMESTAMP '2024-02-27 14:00:00', t)", 1),
    ("TIMESTAMPDIFF(MONTH, DATE '2024-01-30', day_)", 1),
    ("TIMESTAMPDIFF(SECOND, t, TIMESTAMP '2024-02-29 13:04:00')", -5),
    ("TIMESTAMPADD(HOUR, 2, TIMESTAMP '2024-02-29 23:00:00')", datetime(2024, 3, 1, 1)),
    ("TIMESTAMP '2024-02-29 00:00:00' + INTERVAL '1' DAY", datetime(2024, 3, 1)),
    ("FLOOR(t TO HOUR)", datetime(2024, 2, 29, 13)),
    ("CEIL(t TO DAY)", datetime(2024, 3, 1)),
    ("CEIL(TIMESTAMP '2024-03-01 00:00:00' TO DAY)", datetime(2024, 3, 1)),
    ("FROM_UNIXTIME(86400)", "1970-01-02 00:00:00"),
    ("UNIX_TIMESTAMP('1970-01-02 00:00:00')", 86400),
    ("TO_TIMESTAMP_LTZ(1500, 3)", datetime(1970, 1, 1, 0, 0, 1, 500000)),
    ("CURRENT_DATE", date(2024, 5, 6)),
    ("NOW()", datetime(2024, 5, 6, 7, 8, 9, 123000)),
    ("UNIX_TIMESTAMP() / 86400", 19849),
    # a DATE and days stay a DATE, texts of points in time have all their digits
    ("day_ + INTERVAL '1' DAY", date(2024, 3, 1)),
    ("day_ - INTERVAL '1' MONTH", date(2024, 1, 29)),
    ("INTERVAL '1' YEAR + day_", date(2025, 2, 28)),
    ("CAST(CURRENT_DATE - INTERVAL '1' DAY AS STRING)", "2024-05-05"),
    ("CAST(day_ + INTERVAL '2' DAYS - INTERVAL '1' MONTH AS STRING)", "2024-02-02"),
    ("CAST(TIMESTAMPADD(DAY, -1, day_) AS STRING)", "2024-02-28"),
    ("CAST(COALESCE((day_ - INTERVAL '1' DAY), day_) AS STRING)", "2024-02-28"),
    ("TIMESTAMPADD(MONTH, 1, day_)", date(2024, 3, 29)),
    ("TIMESTAMPADD(HOUR, 1, day_)", datetime(2024, 2, 29, 1)),
    ("CAST(FLOOR(day_ TO MONTH) AS STRING)", "2024-02-01"),
    ("CEIL(day_ TO MONTH)", date(2024, 3, 1)),
    ("CEIL((day_ + INTERVAL '1' DAY) TO MONTH) - INTERVAL '1' DAY", date(2024, 2, 29)),
    ("FLOOR(TIMESTAMPADD(DAY, 1, day_) TO MONTH)", date(2024, 3, 1)),
    ("t + INTERVAL '1' DAY", datetime(2024, 3, 1, 13, 4, 5, 678000)),
    ("DATEDIFF(day_, TIMESTAMP '2024-02-01 23:59:59')", 28),
    ("DATEDIFF('2024-03-01', '2024-02-28')", 2),
    ("DATEDIFF('soon', day_)", None),
    ("DATE_FORMAT('soon', 'yyyy')", None),
    ("DATE_FORMAT('2024-02-29', 'yyyy年MM月')", "2024年02月"),
    ("CAST(CAST(t AS TIMESTAMP_LTZ(3)) AS STRING)", "2024-02-29 13:04:05.678"),
    (
        "CAST(CAST(TIMESTAMP '2024-01-01 00:00:00.123456' AS TIMESTAMP_LTZ(6)) AS STRING)",
        "2024-01-01 00:00:00.123456",
    ),
    ("YEAR(CAST(t AS TIMESTAMP_LTZ(3)))", 2024),
    # texts
    ("SUBSTRING('2024-02-29', 0, 7)", "2024-02"),
    ("SUBSTR('2024-02-29', 0)", "2024-02-29"),
    ("SUBSTRING('abcdef', n - 3, 2)", "ab"),
    ("SUBSTRING('abcdef', n, 2)", "cd"),
    ("SUBSTRING('新会员续费', 2, 2)", "会员"),
    ("LPAD('会', 3, '员')", "员员会"),
    ("NVL(CAST(NULL AS STRING), '未知')", "未知"),
    ("'新' || '会员'", "新会员"),
    ("CASE '续费' WHEN '新增' THEN 1 WHEN '续费' THEN 2 END", 2),
    ("TRANSLATE('a-b', '-', '_')", "a_b"),
    ("HEX('ab')", "6162"),
    ("TO_BASE64('ab')", "YWI="),
    ("FROM_BASE64('YWI=')", "ab"),
    ("SHA2('a', 256) = SHA256('a')", True),
    ("IS_DIGIT('042')", True),
    ("IS_ALPHA('会员a')", True),
    ("IS_ALPHA('a1')", False),
    ("IS_DECIMAL('-1.5')", True),
    ("IS_DECIMAL(CAST(NULL AS STRING))", False),
    ("JSON_VALUE('{\"a\": 7}', 'lax $.a')", "7"),
    ("JSON_VALUE('{\"a\": \"7\"}', '$.a' RETURNING INT)", 7),
    (
        'JSON_QUERY(\'{"a": ["x", null, {"b": 1}]}\', \'$.a\' RETURNING ARRAY<STRING>)',
        ["x", None, '{"b":1}'],
    ),
    ("JSON_QUERY('{\"a\": {}}', '$.a' RETURNING ARRAY<STRING>)", None),
    ("_UTF8'it''s' || _UTF-16LE'x'", "it'sx"),
    ("JSON_VALUE('{\"a\": \"x\"}', '$.a' RETURNING DECIMAL(10, 2))", None),
    ("JSON_QUERY('{\"a\": [1, 2]}', '$.a')", "[1,2]"),
    ("JSON_QUERY('{\"a\": 1}', '$.a')", None),
    ("JSON_EXISTS('{\"a\": 1}', '$.a')", True),
    ("JSON_EXISTS('{\"a\": 1}', '$.b')", False),
    # numbers
    ("LOG(E())", 1.0),
    ("ROUND(LOG(2, 8), 6)", 3.0),
    ("DEGREES(PI())", 180.0),
    ("TRUNCATE(m, 1)", Decimal("12.3")),
    ("ROUND(m, 1)", Decimal("12.3")),
    ("ROUND(-2.5)", Decimal("-3")),
    # lists and maps
    ("CAST(ROW(n, 'x') AS ROW<a BIGINT, b STRING>)", {"a": 3, "b": "x"}),
    # texts and bytes
    ("CAST('abc' AS VARBINARY(2))", b"ab"),
    ("CAST('abc' AS VARBINARY(4))", b"abc"),
    ("CAST('abc' AS BYTES)", b"abc"),
    ("CAST('a\\x41ä\\' AS BYTES)", b"a\\x41\xc3\xa4\\"),
    ("TRY_CAST('ä' AS BYTES)", b"\xc3\xa4"),
    ("CAST('abc' AS BINARY(2))", b"ab"),
    ("CAST('abc' AS BINARY(5))", b"abc\0\0"),
    ("CAST(s AS BINARY)", b" "),
    ("CAST(CASE WHEN b THEN s END AS BINARY(9))", b" Hello \0\0"),
    ("CAST(CAST(s AS BYTES) AS BINARY(9))", b" Hello \0\0"),
    ("CAST(CAST('a\\x41ä' AS BYTES) AS STRING)", "a\\x41ä"),
    ("CAST(CAST('ä' AS BYTES) AS CHAR(3))", "ä  "),
    ("CAST(NULL AS BYTES)", None),
    ("CAST('ab' AS CHAR(4))", "ab  "),
    ("CAST('äb€𝄞e' AS CHAR(4))", "äb€𝄞"),
    ("TRY_CAST(s AS CHAR(9))", " Hello   "),
    ("CAST(i AS CHAR(4))", "-7  "),
    ("CAST(b AS CHAR(5))", "TRUE "),
    ("CAST(s AS CHAR)", " "),
    ("CAST('ab' AS VARCHAR(4))", "ab"),
    ("CAST(s AS VARCHAR)", " Hello "),
    ("CAST(t AS CHAR(10))", "2024-02-29"),
    ("MAP['a', 1, 'b', 2]['b']", 2),
    ("CARDINALITY(MAP['a', n])", 1),
    ("MAP_KEYS(MAP['a', 1])", ["a"]),
    ("ARRAY_CONTAINS(ARRAY['a', 'b'], 'b')", True),
]


@pytest.mark.parametrize(("expression", "expected"), CASES)
def test_value(catalog: Catalog, expression: str, expected: object) -> None:
    result = catalog.value(expression, **ROW)
    assert result == expected
    assert type(result) is type(expected)


def test_division_of_whole_numbers_by_zero_is_an_error(catalog: Catalog) -> None:
    with pytest.raises(duckdb.Error, match="[Dd]ivision by zero"):
        catalog.value("n / (n - 3)", **ROW)


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("UPER(s)", "function 'UPER' is not supported; did you mean UPPER?"),
        ("UPPER(s, s)", "UPPER takes 1 argument(s), not 2"),
        ("IF(b, 1)", "IF takes 3 argument(s), not 2"),
        ("DATE_FORMAT(t, 'yyyy-bb')", "'bb' in the pattern 'yyyy-bb' is not supported"),
        ("TO_TIMESTAMP(s, 'yyyy-QQ')", "'QQ' in the pattern 'yyyy-QQ' cannot be parsed"),
        ("TIMESTAMPDIFF(FORTNIGHT, t, t)", "'FORTNIGHT' is not a unit of time"),
        ("EXTRACT(ERA FROM t)", "EXTRACT has no field 'ERA'"),
        ("n + s", "'+' does not take a string; CAST it to a number"),
        ("CURRENT_USER", "there is no column 'CURRENT_USER'"),
        ("UUID()", "function 'UUID' is not supported; a repeated batch must return the same"),
        ("RAND()", "function 'RAND' is not supported; a repeated batch must return the same"),
        ("LENGTH(s)", "function 'LENGTH' is not supported; write CHAR_LENGTH(text)"),
        ("DATE(t)", "function 'DATE' is not supported; write CAST(t AS DATE)"),
        ("STR_TO_DATE(s, '%Y')", "function 'STR_TO_DATE' is not supported; write TO_DATE(text"),
        ("MAP['a']", "MAP takes pairs: MAP[key, value, …]"),
        ("SHA2(s, 100)", "SHA2 takes a length of 224, 256, 384, 512, not 100"),
    ],
)
def test_wrong_calls_are_errors_with_a_position(
    catalog: Catalog, expression: str, message: str
) -> None:
    with pytest.raises(SqlError) as caught:
        catalog.stream(f"SELECT 1,\n   {expression} AS v FROM typed")
    assert (caught.value.line, caught.value.column) == (2, 4)
    assert caught.value.message.startswith(message)


def test_rubbish_functions_are_unsupported_not_passed_on(catalog: Catalog) -> None:
    with pytest.raises(UnsupportedSqlError, match="READ_CSV"):
        catalog.bounded("SELECT READ_CSV('x') FROM typed")
    with pytest.raises(UnsupportedSqlError, match="read_csv"):
        catalog.bounded("SELECT * FROM read_csv('/etc/passwd')")


def test_pattern_letters() -> None:
    assert strftime("EEE, dd MMM yyyy hh 'o''clock' a %") == "%a, %d %b %Y %I o'clock %p %%"
    with pytest.raises(ArgumentError, match="'W'"):
        parts("W")
    with pytest.raises(ArgumentError, match="never closed"):
        parts("yyyy'T")
