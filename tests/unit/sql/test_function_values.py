"""Functions of texts, JSON, arrays and maps: the values that Flink documents, by both planners."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.unit.sql.conftest import Catalog

ROW: dict[str, Any] = {"i": 2, "n": 3, "d": float("nan"), "s": "a-b", "b": True,
                       "t": datetime(2024, 2, 29, 13, 4, 5, 678000)}  # fmt: skip
NULLS = "ARRAY[1, CAST(NULL AS INT), 2]"
CASES: list[tuple[str, object]] = [
    # places of arrays and keys of maps
    ("ARRAY[10, 20, 30][i]", 20),
    ("ARRAY[10, 20, 30][i - 5]", None),
    ("MAP[12, 'a', 2, 'b'][12]", "a"),
    ("MAP[12, 'a', 2, 'b'][i]", "b"),
    ("ARRAY[ARRAY[1, 2], ARRAY[3]][2][1]", 3),
    # arrays
    ("ARRAY_APPEND(ARRAY[1], 2)", [1, 2]),
    ("ARRAY_APPEND(CAST(NULL AS ARRAY<INT>), 2)", None),
    ("ARRAY_CONCAT(ARRAY[1], ARRAY[2, 3])", [1, 2, 3]),
    (f"ARRAY_CONTAINS({NULLS}, CAST(NULL AS INT))", True),
    ("ARRAY_CONTAINS(ARRAY[1], CAST(NULL AS INT))", False),
    ("ARRAY_CONTAINS(CAST(NULL AS ARRAY<INT>), 1)", None),
    ("ARRAY_DISTINCT(ARRAY[2, 1, CAST(NULL AS INT), 2, CAST(NULL AS INT)])", [2, 1, None]),
    ("ARRAY_EXCEPT(ARRAY[1, 2, 2, 3], ARRAY[1])", [2, 3]),
    ("ARRAY_INTERSECT(ARRAY[3, 2, 2, 1], ARRAY[2, 3])", [3, 2]),
    ("ARRAY_JOIN(ARRAY['a', CAST(NULL AS STRING), 'b'], '-')", "a-b"),
    ("ARRAY_JOIN(ARRAY['a', CAST(NULL AS STRING), 'b'], '-', '?')", "a-?-b"),
    (f"ARRAY_MAX({NULLS})", 2),
    (f"ARRAY_MIN({NULLS})", 1),
    ("ARRAY_POSITION(ARRAY[5, 6], 6)", 2),
    ("ARRAY_POSITION(ARRAY[5, 6], 7)", 0),
    ("ARRAY_PREPEND(ARRAY[1], 0)", [0, 1]),
    (f"ARRAY_REMOVE({NULLS}, CAST(NULL AS INT))", [1, 2]),
    ("ARRAY_REVERSE(ARRAY[1, 2])", [2, 1]),
    ("ARRAY_SLICE(ARRAY[1, 2, 3, 4], 2, 3)", [2, 3]),
    ("ARRAY_SLICE(ARRAY[1, 2, 3, 4], -2)", [3, 4]),
    (f"ARRAY_SORT({NULLS})", [None, 1, 2]),
    (f"ARRAY_SORT({NULLS}, FALSE)", [2, 1, None]),
    ("ARRAY_UNION(ARRAY[1, 2], ARRAY[2, 3])", [1, 2, 3]),
    ("ELEMENT(ARRAY[7])", 7),
    ("SPLIT('a,b,,', ',')", ["a", "b", "", ""]),
    ("SPLIT('ab', '')", ["a", "b"]),
    # types
    ("TYPEOF(t)", "TIMESTAMP(3)"),
    ("TYPEOF(i + n)", "BIGINT"),
    ("TYPEOF(m)", "DECIMAL(10, 2)"),
    ("TYPEOF(m / 3)", "DECIMAL(21, 13)"),
    ("TYPEOF(NULL)", "NULL"),
    ("TYPEOF(CAST(s AS TIMESTAMP(9)), TRUE)", "TIMESTAMP(9)"),
    ("TYPEOF(TIME '10:00:00')", "TIME(0)"),
    ("TYPEOF(MAP['a', ARRAY[i]])", "MAP<STRING, ARRAY<INT>>"),
    # maps
    ("MAP_ENTRIES(MAP['a', 1])", [{"key": "a", "value": 1}]),
    ("MAP_FROM_ARRAYS(ARRAY['a'], ARRAY[1])", {"a": 1}),
    ("MAP_UNION(MAP['a', 1], MAP['b', 2])", {"a": 1, "b": 2}),
    ("STR_TO_MAP('k1=v1,k2=v2')['k2']", "v2"),
    # texts of nested values
    ("CAST(ARRAY[TRUE, CAST(NULL AS BOOLEAN)] AS STRING)", "[TRUE, NULL]"),
    ("CAST(MAP['a', 1e10] AS STRING)", "{a=1.0E10}"),
    # JSON
    ("JSON_OBJECT('a' VALUE 1, KEY 'b' VALUE JSON_ARRAY(1, 'x'))", '{"a":1,"b":[1,"x"]}'),
    ("JSON_OBJECT('a' VALUE CAST(NULL AS INT))", '{"a":null}'),
    ("JSON_OBJECT('a' VALUE CAST(NULL AS INT) ABSENT ON NULL)", "{}"),
    ("JSON_ARRAY(1, CAST(NULL AS INT))", "[1]"),
    ("JSON_ARRAY(1, CAST(NULL AS INT) NULL ON NULL)", "[1,null]"),
    ("JSON_STRING('say \"x\"')", '"say \\"x\\""'),
    ("JSON_QUOTE('a\"')", '"a\\""'),
    ("JSON_UNQUOTE('\"a\"')", "a"),
    ("JSON_LENGTH('{\"a\": [1, 2]}', '$.a')", 2),
    ("JSON_VALUE('{\"a\": 1}', '$.b' DEFAULT 'x' ON EMPTY)", "x"),
    ("JSON_VALUE('{\"a\": {}}', '$.a' NULL ON EMPTY DEFAULT 'e' ON ERROR)", "e"),
    ("JSON_VALUE('{\"a\": null}', '$.a' DEFAULT 'x' ON EMPTY)", None),
    ("JSON_QUERY('{\"a\": 1}', 'lax $.b' EMPTY ARRAY ON EMPTY)", "[]"),
    ("JSON_QUERY('1', '$' WITH CONDITIONAL ARRAY WRAPPER)", "[1]"),
    ("JSON_QUERY('[1]', '$' WITH CONDITIONAL ARRAY WRAPPER)", "[1]"),
    ("JSON_QUERY('[1]', '$' WITH UNCONDITIONAL ARRAY WRAPPER)", "[[1]]"),
    ("JSON_QUERY('{\"a\": 1}', 'strict $.b' EMPTY OBJECT ON ERROR)", "{}"),
    ("JSON_QUERY(s, '$' NULL ON EMPTY EMPTY OBJECT ON ERROR)", "{}"),
    ("JSON_QUERY('{\"a\": [{\"c\": 1}, {\"c\": 2}]}', '$.a[*].c')", "[1,2]"),
    ("JSON_EXISTS('{\"a\": 1}', 'strict $.b' TRUE ON ERROR)", True),
    ("JSON_EXISTS('{\"a\": 1}', 'lax $.b' TRUE ON ERROR)", False),
    ("JSON_QUERY('{\"a\": null}', '$.a' EMPTY ARRAY ON EMPTY)", None),
    ("JSON_EXISTS(CAST(NULL AS STRING), '$.a')", None),
    ("JSON_EXISTS(s, '$.b' UNKNOWN ON ERROR)", None),
    ("'{\"a\": 1}' IS JSON OBJECT", True),
    ("'{\"a\": 1}' IS JSON ARRAY", False),
    ("'x' IS NOT JSON", True),
    # texts
    ("REGEXP_COUNT('aXbX', 'X')", 2),
    ("REGEXP_EXTRACT_ALL('a1b2', '([a-z])([0-9])', 2)", ["1", "2"]),
    ("REGEXP_INSTR('hello world', 'wor')", 7),
    ("REGEXP_INSTR('hello', 'x')", 0),
    ("REGEXP_SUBSTR('hello world', 'w[a-z]+')", "world"),
    ("URL_ENCODE('a b&c')", "a+b%26c"),
    ("URL_DECODE('a+b%26c')", "a b&c"),
    ("URL_DECODE('%zz')", None),
    ("DECODE(ENCODE('ä', 'UTF-16'), 'UTF-16')", "ä"),
    ("PARSE_URL('http://u@h:80/p/q?k=v&a=b#r', 'QUERY', 'a')", "b"),
    ("PARSE_URL('http://u@h:80/p/q?k=v&a=b#r', 'AUTHORITY')", "u@h:80"),
    ("CONV('ff', 16, 10)", "255"),
    ("UNHEX('4D79')", b"My"),
    ("HEX('My')", "4D79"),
    ("X'4D79'", b"My"),
    ("ELT(2, 'a', 'b')", "b"),
    ("ELT(3, 'a', 'b')", None),
    ("PRINTF('%d-%s', i, 'a')", "2-a"),
    ("INITCAP('hello wORLD')", "Hello World"),
    ("SPLIT_INDEX(s, '-', i - 1)", "b"),
    ("SPLIT_INDEX(s, '-', -1)", None),
    ("SPLIT_INDEX(s, CAST(NULL AS STRING), 0)", None),
    ("CONCAT_WS('-', s, 'b', 'c', 'd', 'e', 'f', 'g')", "a-b-b-c-d-e-f-g"),
    ("OVERLAY(s PLACING '' FROM 2)", "a"),
    ("U&'\\0041\\\\'", "A\\"),
    ("CAST((i, s, b, t) AS STRING)", "(2, a-b, TRUE, 2024-02-29 13:04:05.678)"),
    ("CAST(ARRAY[t, NULL] AS STRING)", "[2024-02-29 13:04:05.678, NULL]"),
    # numbers
    ("ROUND(m, CAST(NULL AS INT))", None),
    ("d > 0", False),
    ("d = d", False),
    ("d <> d", True),
    ("n < d", False),
    ("CAST(1e7 AS STRING)", "1.0E7"),
    ("CAST(1e-4 AS STRING)", "1.0E-4"),
    ("CAST(d AS STRING)", "NaN"),
    ("CAST(CAST(1234567.8 AS FLOAT) AS STRING)", "1234567.8"),
    # time
    ("CAST(TIME '10:20:30' AS STRING)", "10:20:30"),
    ("TIMESTAMPADD(HOUR, 2, TIME '23:00:00') = TIME '01:00:00'", True),
    ("TO_TIMESTAMP('12:30', 'HH:mm')", datetime(1970, 1, 1, 12, 30)),
    ("TO_TIMESTAMP('2024-01-02 03:04:05.6789')", datetime(2024, 1, 2, 3, 4, 5, 678000)),
    ("DATE_FORMAT(t, 'yyyy QQQ E SS')", "2024 Q1 Thu 67"),
    ("CAST(t + INTERVAL '1' DAY AS STRING)", "2024-03-01 13:04:05.678"),
    ("CAST(INTERVAL '1 02:03' DAY TO MINUTE AS STRING)", "+1 02:03:00.000"),
    ("t - INTERVAL '1 13:04:05.678' DAY TO SECOND", datetime(2024, 2, 28)),
    ("CAST(FLOOR(TIMESTAMP '2000-06-01 00:00:00' TO CENTURY) AS STRING)", "1901-01-01 00:00:00"),
    ("CAST(INTERVAL '1' DAY + t AS STRING)", "2024-03-01 13:04:05.678"),
    ("CAST(FLOOR(t TO HOUR) AS STRING)", "2024-02-29 13:00:00.000"),
    ("EXTRACT(NANOSECOND FROM TIMESTAMP '1969-12-31 23:59:59.123456789')", 123456789),
    ("DATE_FORMAT(TIMESTAMP '1969-12-31 23:59:59.123456789', 'ss.SSSSSSSSS')", "59.123456789"),
]  # fmt: skip


@pytest.mark.parametrize(("expression", "expected"), CASES, ids=[text for text, _ in CASES])
def test_value(catalog: Catalog, expression: str, expected: object) -> None:
    assert catalog.value(expression, **ROW) == expected
