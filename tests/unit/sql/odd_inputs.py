"""Generates expressions of odd inputs: functions, casts and comparisons; and Flink's answers.

`expressions` returns the same list for the same seed. Values are casts of texts, so that no planner
knows their length. `scripts/flink_odd_inputs.py` writes the fixture: a line with the digest of the
expressions, then a line for each of them.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path

FIXTURE = Path(__file__).parent / "fixtures" / "flink_odd_inputs.jsonl"
ERROR, UNKNOWN = False, True
"""Answers that are no texts: an error, and a function that this version of Flink does not have."""
Answer = str | bool | None

TIMES = (
    "infinity", "-infinity", "epoch", "now", "today", "2020-01-01 (BC)", "0044-03-15 (BC)",
    "2020-01-01 BC", "10000-01-01", "+10000-01-01 00:00:00", "99999-12-31 00:00:00", "0000-01-01",
    "0001-01-01 00:00:00", "-0001-01-01", "2020-01-01 00:00:00+02", "2020-01-01 00:00:00+02:00",
    "2020-01-01 00:00:00Z", "2020-01-01T01:02:03", "2020-01-01T01:02:03Z",
    "2020-01-01 00:00:00 UTC", "2020-01-01 00:00:00 Europe/Berlin", "2020-01-01 24:00:00",
    "2020-01-01 23:59:60", "2020-01-01 12", "2020-01-01 12:30", "2020-01-01 1:2:3", "2020-1-1",
    "2020-1-1 01:01:01", "2020-02-30", "2019-02-29 00:00:00", "2020-13-01", "2020-00-10",
    "2020-01-00", "20200101", "2020-01", "2020", "2020-01-01 00:00:00.1",
    "2020-01-01 00:00:00.123456789", "2020-01-01 00:00:00.1234567891", "2020-01-01 00:00:00.",
    " 2020-01-01 ", " 2020-01-01 00:00:00 ", "2020-01-01  00:00:00", "2020/01/01",
    "2020/01/01 00:00:00", "01-01-2020", "2020-01-01x", "2020-01-01 00:00:00x", "", "  ", "abc",
    "12:30", "12:30:45", "24:00:00", "12:30:45.123", "12:60:00", "1:2:3", "12", "-12:00:00",
    "12:30:45+02", "12:30:45Z", "12:30 PM", "0.5", "2020-01-01 -1:00:00",
    "2020-01-01 00:00:00,5", "1582-10-10", "9999-12-31 23:59:59.999999999", "20-01-01",
    "2020-01-01 00:00:00 +02", "2020-06-15 10:20:30.5", "2020-01-01T1:2", "2020-01-01 10:20:30.5Z",
)  # fmt: skip
NUMBERS = (
    "", " ", "1", " 1 ", "+1", "-1", "--1", "1.", ".5", "1.9", "-1.9", "1e3", "1E-3", "0x1F",
    "1_000", "1,000", "NaN", "nan", "Infinity", "-Infinity", "inf", "infinity", "+Infinity",
    "127", "128", "-128", "-129", "32768", "2147483647", "2147483648", "-9223372036854775808",
    "9223372036854775808", "1e400", "1e-400", "1d", "1f", "1L", "\u0661", "true", "null", ".", "-",
    "-0", "-0.0", "1 2", "1\t", "99999999.995", "99999999.994", "1.005", "0.00000001",
    "123456789012345678901234567890", "T", "F", "TRUE", "tRuE", "yes", "no", "y", "n", "on", "off",
    "1.0", "0", "00", "10", "9", "abc", "16777217", "3.4028236e38", " true ", "1e", "-.5e1",
)  # fmt: skip
TEXTS = (
    "", " ", "a", "abcabc", "\u00df", "\ufb01", "\u03a3", "\u0391\u03a3", "\u0391\u03a3 \u03a3",
    "\u0130", "\u0131", "\u01c6", "\u00c9", "e\u0301", "\U0001f600", "a\U0001f600b",
    "\u00a0x\u00a0",
    "\tx\n", "Hello wOrld", "o'neil's", "x_y-z 1a", "\u0661\u0662", "\u00bd", "%", "a%20b+c", "%zz",
    "a,b,,c", "k=v,k=w", "12", "-1.5", "\ufb03le STRASSE", "\u1e9e", "\u1f80",
)  # fmt: skip
DOUBLES = ("NaN", "Infinity", "-Infinity", "-0.0", "0", "0.5", "-2.5", "1E300", "4.9E-324",
           "1234567.891")  # fmt: skip
DATES = ("0001-01-01", "1582-10-10", "1969-12-31", "1970-01-01", "2020-02-29", "2021-03-31",
         "2024-12-30", "9999-12-31")  # fmt: skip
MOMENTS = ("0001-01-01 00:00:00", "1582-10-10 12:00:00", "1969-12-31 23:59:59.999",
           "1970-01-01 00:00:00", "2020-02-29 23:59:59.999", "2021-03-28 02:30:00",
           "2021-01-03 10:20:30.456", "9999-12-31 23:59:59.999")  # fmt: skip
DOCUMENTS = (
    '{"a": 1, "b": {"c": [1, 2, null, "x"]}, "n": null, "t": true, "s": "x\\"y", "e": {}, "l": []}',
    '{"a.b": 1, "a": {"b": 2}, "x y": 3}', '{"a": 1, "a": 2}', "[1, 2, [3, 4]]", '"text"', "12.50",
    "null", "", "{", "[1,]", "{'a': 1}", '{"a": 1} x', "NaN",
    '{"\u00fc": "\u00df", "u": "\\u00e9"}',
    '[{"p": 1, "c": "r"}, {"p": 5, "c": "g"}, {"c": "b"}]', '{"a": 1e2, "b": 1.0, "c": 1e-7}',
    '{"a": 12345678901234567890, "b": -0, "d": 0.1000}', ' { "a" : [ 1 , 2 ] } ', "true",
)  # fmt: skip
PATHS = (
    "$", "$.a", "$.b", "$.n", "$.b.c", "$.b.c[0]", "$.b.c[2]", "$.b.c[-1]", "$.b.c[9]", "$[0]",
    "$[2][1]", "$[*]", "$[*].p", "$.b.c[*]", "$.*", "$['a.b']", "$['a']['b']", '$["x y"]', "$.s",
    "$.e", "$.l", "$.t", "$.a.b", "$..c", "$.b.c[0:2]", "$.b.c[1:]", "$[?(@.p > 2)]",
    "$[?(@.p)].c", "$.missing", "$.l[0]", "lax $.a", "lax $.missing", "strict $.a",
    "strict $.missing", "lax $.b.c[*]", "lax $[*].p", "$.\u00fc", "$.u", "$.c", "$.d", "$[0,1]",
    "$.b.c.length()", "a", "", "$.", "$['a", "lax $.n", "lax $",
)  # fmt: skip
PATTERNS = (
    "", "a", "b?", "(x)?a", "(a)|(b)", "(z)|a", "[", "^", "$", ".*", "\\d+", "(?i)HELLO", "a{2}",
    "(b)(c)", "\\s",
)  # fmt: skip
TYPES = (
    "BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL(10, 2)",
    "DECIMAL(38, 18)", "STRING", "CHAR(3)", "VARCHAR(2)", "BYTES", "DATE", "TIME(0)",
    "TIMESTAMP(0)", "TIMESTAMP(3)", "TIMESTAMP(6)", "TIMESTAMP_LTZ(3)",
)  # fmt: skip
UNITS = ("SECOND", "MINUTE", "HOUR", "DAY", "WEEK", "MONTH", "QUARTER", "YEAR")
FIELDS = (*UNITS, "DOY", "DOW", "ISODOW", "ISOYEAR", "EPOCH", "CENTURY", "DECADE", "MILLENNIUM",
          "MILLISECOND", "MICROSECOND")  # fmt: skip


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def value(text: str | None, kind: str = "STRING") -> str:
    """A value of a type, given by its text; null without one."""
    return f"CAST({'NULL' if text is None else quoted(text)} AS {kind})"


VALUES: dict[str, tuple[str | None, ...]] = {
    "BOOLEAN": ("true", "false", None),
    "TINYINT": ("-128", "127", "0"),
    "SMALLINT": ("-32768", "300", None),
    "INT": ("-2147483648", "2147483647", "9", "0", None),
    "BIGINT": ("-9223372036854775808", "9223372036854775807", "1600000000", None),
    "FLOAT": ("NaN", "Infinity", "16777217", "0.1", "-1.5"),
    "DOUBLE": (*DOUBLES, None),
    "DECIMAL(10, 2)": ("-99999999.99", "0.00", "9.50", None),
    "DECIMAL(38, 18)": ("99999999999999999999.999999999999999999", "0.000000000000000001"),
    "STRING": ("", "9", "10", " 9 ", "9.5", "abc", "TRUE", "2020-02-29", "2020-02-29 10:20:30",
    None),
    "BYTES": ("", "abc", None),
    "DATE": (*DATES, None),
    "TIME(0)": ("00:00:00", "23:59:59", None),
    "TIMESTAMP(3)": (*MOMENTS, None),
    "TIMESTAMP(6)": ("2020-02-29 10:20:30.123456",),
    "TIMESTAMP_LTZ(3)": ("2020-02-29 10:20:30.123", None),
}  # fmt: skip


def _sample(rng: random.Random, cases: Sequence[str], count: int) -> list[str]:
    return rng.sample(cases, min(count, len(cases)))


def _calls(*templates: str, values: Sequence[str | None], kind: str = "STRING") -> list[str]:
    """Each template with each value."""
    return [t.replace("{}", value(text, kind)) for t, text in product(templates, values)]


def times_of_texts(rng: random.Random) -> Iterator[str]:
    yield from _calls(
        "TRY_CAST({} AS DATE)", "TRY_CAST({} AS TIME(0))", "TRY_CAST({} AS TIMESTAMP(3))",
        "TO_DATE({})", "TO_TIMESTAMP({})", "DATE_FORMAT({}, 'yyyy-MM-dd HH:mm:ss')",
        "TO_TIMESTAMP({}, 'yyyy-MM-dd HH:mm:ss')",
        values=TIMES,
    )  # fmt: skip
    strict = _calls(*(f"CAST({{}} AS {kind})" for kind in TYPES[13:]), values=TIMES)
    other = _calls(
        *(f"TRY_CAST({{}} AS {kind})" for kind in TYPES[15:]), "UNIX_TIMESTAMP({})",
        "TO_DATE({}, 'yyyy-MM-dd')", "TO_TIMESTAMP({}, 'yyyy/MM/dd')", "TO_DATE({}, 'yyyyMMdd')",
        "TO_TIMESTAMP({}, 'HH:mm')",
        "CONVERT_TZ({}, 'UTC', 'Europe/Berlin')", "YEAR(TRY_CAST({} AS DATE))",
        "TRY_CAST({} AS TIME(3))", "TRY_CAST({} AS TIMESTAMP(9))",
        "CAST({} AS DATE) = DATE '2020-01-01'",
        "{} = DATE '2020-01-01'", "{} < TIMESTAMP '2020-01-01 00:00:00'",
        values=TIMES,
    )  # fmt: skip
    yield from _sample(rng, strict, 20)
    yield from _sample(rng, other, 170)


def numbers_of_texts(rng: random.Random) -> Iterator[str]:
    casts = _calls(*(f"TRY_CAST({{}} AS {kind})" for kind in TYPES[:9]), values=NUMBERS)
    yield from _sample(rng, casts, 330)
    yield from _sample(
        rng, _calls(*(f"CAST({{}} AS {kind})" for kind in TYPES[:9]), values=NUMBERS), 15
    )
    yield from _calls("{} > 9", "{} = 1", values=NUMBERS)
    other = _calls(
        "{} = 1.0", "{} < CAST(9 AS BIGINT)", "{} <> CAST(1 AS DOUBLE)", "{} BETWEEN 0 AND 9",
        "{} IN (1, 2)", "{} = TRUE", "9 >= {}", "{} + 1", "{} IS NOT DISTINCT FROM 1",
        "CASE {} WHEN 1 THEN 'one' ELSE 'other' END", "COALESCE({}, 'none')", "NULLIF({}, '1')",
        values=NUMBERS,
    )  # fmt: skip
    yield from _sample(rng, other, 120)


def pairs_of_types(rng: random.Random) -> Iterator[str]:
    casts = [
        f"TRY_CAST({value(text, source)} AS {kind})"
        for source, texts in VALUES.items()
        for text, kind in product(texts, TYPES)
        if source != "STRING"
    ]
    yield from _sample(rng, casts, 270)
    values = [value(text, kind) for kind, texts in VALUES.items() for text in texts[:3]]
    operators = ("=", "<", ">=", "+", "-", "*", "IS NOT DISTINCT FROM")
    yield from _sample(
        rng, [f"{a} {op} {b}" for a, op, b in product(values, operators, values)], 200
    )
    yield from _sample(rng, [f"COALESCE({a}, {b})" for a, b in product(values, values)], 40)


def texts(rng: random.Random) -> Iterator[str]:
    yield from _calls(
        "UPPER({})", "LOWER({})", "INITCAP({})", "CHAR_LENGTH({})", "REVERSE({})", "TRIM({})",
        "ASCII({})", values=[*TEXTS, None],
    )  # fmt: skip
    one = _calls(
        "LTRIM({})", "RTRIM({})", "BTRIM({}, 'ax')", "TRIM(BOTH 'a' FROM {})", "HEX({})",
        "TO_BASE64({})", "CAST(FROM_BASE64({}) AS STRING)", "URL_ENCODE({})", "URL_DECODE({})",
        "IS_ALPHA({})", "IS_DIGIT({})", "IS_DECIMAL({})", "MD5({})", "SHA256({})", "{} || 'x'",
        "CONCAT({}, 'x', NULL)", "CONCAT_WS(',', {}, NULL, 'x')", "CONCAT_WS({}, 'a', 'b')",
        "STR_TO_MAP({})", "STR_TO_MAP({}, ',', ':')", "TRANSLATE({}, 'abc', 'xy')",
        "SPLIT({}, ',')",
        "SPLIT_INDEX({}, ',', 1)", "SPLIT_INDEX({}, ',', -1)", "SPLIT_INDEX({}, '', 0)",
        "LTRIM({}, 'a')", "RTRIM({}, 'c')", "ELT(2, {}, 'b')", "ELT(3, {}, 'b')", "UNHEX({})",
        "OVERLAY({} PLACING 'ZZ' FROM 2)", "OVERLAY({} PLACING '' FROM 1 FOR 2)",
        "POSITION('' IN {})", "POSITION('a' IN {})", "INSTR({}, '')", "LOCATE('b', {}, 0)",
        "LOCATE('b', {}, 3)", "STARTSWITH({}, '')", "ENDSWITH({}, 'c')", "{} LIKE ''",
        "{} LIKE '%'", "{} LIKE '_'", "{} LIKE 'a\\%' ESCAPE '\\'", "{} SIMILAR TO '[a-c]*'",
        "{} IN ('a', NULL)", "{} NOT IN ('a', NULL)", "CAST({} AS BYTES)", "ENCODE({}, 'UTF-16BE')",
        "CAST({} AS CHAR(2))", "CAST({} AS VARCHAR(1))", "CAST({} AS BINARY(2))",
        "PARSE_URL({}, 'HOST')", "JSON_QUOTE({})", "JSON_UNQUOTE({})", "JSON_STRING({})",
        "{} IS JSON", "GREATEST({}, 'b')", "LEAST({}, '\ue000')", "{} < 'b'", "{} < '\U0001f600'",
        "CHR(CHAR_LENGTH({}) - 1)", "PARSE_URL('http://u@h:1/p?q=' || {} || '#r', 'QUERY', 'q')",
        values=[*TEXTS, None],
    )  # fmt: skip
    yield from _sample(rng, one, 330)
    yield from _sample(rng, _of_three_texts(), 110)
    yield from _sample(rng, _of_lengths(), 90)
    yield from _sample(rng, _of_patterns(), 150)


def _of_three_texts() -> list[str]:
    some = ("", "a", "bc", "abcabc", "$1", "\\", "\U0001f600", None)
    templates = ("REPLACE({}, {}, {})", "TRANSLATE({}, {}, {})", "REGEXP_REPLACE({}, {}, {})",
                 "SPLIT_INDEX({}, {}, 1)", "SPLIT({}, {})", "INSTR({}, {})", "STARTSWITH({}, {})",
                 "ENDSWITH({}, {})")  # fmt: skip
    cases = []
    for template, *given in product(templates, TEXTS[:4], some, some):
        for text in given:
            template = template.replace("{}", value(text), 1)
        cases.append(template)
    return sorted(set(cases))


def _of_lengths() -> list[str]:
    counts = ("-2147483648", "-1", "0", "1", "2", "7", "CAST(NULL AS INT)")
    one = ("LEFT({}, #)", "RIGHT({}, #)", "REPEAT({}, #)", "SUBSTRING({}, #)",
           "LPAD({}, #, '')", "LPAD({}, #, 'xy')", "RPAD({}, #, 'xy')", "SPLIT_INDEX({}, 'b', #)",
           "SUBSTRING({} FROM # FOR #)", "SUBSTR({}, #, 2)", "INSTR({}, 'b', #)",
           "INSTR({}, 'b', 1, #)", "OVERLAY({} PLACING 'Z' FROM # FOR 1)", "CHR(#)",
           "ELT(#, {}, 'b')",
           "LOCATE('b', {}, #)")  # fmt: skip
    given = ("", "abcabc", "a\U0001f600b", None)
    return sorted(
        {t.replace("{}", value(s)).replace("#", n) for t, s, n in product(one, given, counts)}
    )


def _of_patterns() -> list[str]:
    templates = ("REGEXP({}, #)", "REGEXP_EXTRACT({}, #)", "REGEXP_EXTRACT({}, #, 1)",
                 "REGEXP_EXTRACT({}, #, 2)", "REGEXP_EXTRACT({}, #, -1)",
                 "REGEXP_EXTRACT_ALL({}, #)", "REGEXP_EXTRACT_ALL({}, #, 0)", "REGEXP_COUNT({}, #)",
                 "REGEXP_INSTR({}, #)", "REGEXP_SUBSTR({}, #)", "REGEXP_REPLACE({}, #, 'Z')",
                 "REGEXP_REPLACE({}, #, '[$0]')", "REGEXP_REPLACE({}, #, '')")  # fmt: skip
    given = ("", "a", "abcabc", "b12\n", "Hello", None)
    return [
        t.replace("{}", value(s)).replace("#", quoted(p))
        for t, s, p in product(templates, given, PATTERNS)
    ]


def numbers(rng: random.Random) -> Iterator[str]:
    templates = [f"{name}({{}})" for name in (
        "ABS", "SIGN", "FLOOR", "CEIL", "SQRT", "LN", "LOG10", "LOG2", "EXP", "SIN", "COT",
        "ASIN", "ACOS", "ATAN", "TANH", "SINH", "DEGREES", "ROUND", "TRUNCATE", "BIN", "HEX",
    )]  # fmt: skip
    templates += [
        "-{}", "ROUND({}, 1)", "ROUND({}, -1)", "TRUNCATE({}, 1)", "TRUNCATE({}, -2)",
        "POWER({}, 2)",
        "POWER({}, -0.5)", "POWER(0, {})", "LOG(2, {})", "LOG({}, 2)", "MOD({}, 3)", "{} % -2",
        "{} / 2", "5 / {}", "{} / 0", "MOD({}, 0)", "{} * {}", "{} - {}", "{} = {}",
        "{} IN (1, CAST('NaN' AS DOUBLE))", "{} IN (0, {})", "{} NOT IN (1, CAST('NaN' AS DOUBLE))",
        "{} = CAST('NaN' AS DOUBLE)", "{} > CAST('Infinity' AS DOUBLE)", "{} BETWEEN 0 AND 9",
        "GREATEST({}, CAST(1 AS DOUBLE))", "LEAST({}, CAST('NaN' AS DOUBLE))", "NULLIF({}, {})",
        "{} IS NOT DISTINCT FROM {}", "IF({} > 0, 'p', 'n')",
        "CASE {} WHEN 0 THEN 'z' ELSE 'o' END",
        "COALESCE({}, 0)", "IFNULL({}, 1)", "ATAN2({}, 0)", "{} > 9 OR {} IS NULL", "{} <> 0",
        "CONV(CAST({} AS STRING), 10, 16)", "ARRAY_CONTAINS(ARRAY[{}], {})", "MAP[{}, 1][{}]",
    ]  # fmt: skip
    kinds = ("INT", "BIGINT", "DOUBLE", "FLOAT", "DECIMAL(10, 2)")
    cases = [case for kind in kinds for case in _calls(*templates, values=VALUES[kind], kind=kind)]
    yield from _sample(rng, cases, 330)
    yield from _sample(
        rng,
        [
            f"CONV({value(t)}, {a}, {b})"
            for t, a, b in product(NUMBERS, (2, 10, 16, -16), (2, 36, -10))
        ],
        30,
    )


def times(rng: random.Random) -> Iterator[str]:
    templates = [f"{name}({{}} TO {unit})" for name in ("FLOOR", "CEIL") for unit in UNITS]
    templates += [f"EXTRACT({name} FROM {{}})" for name in FIELDS]
    templates += [f"{name}({{}})" for name in (
        "YEAR", "QUARTER", "MONTH", "WEEK", "DAYOFYEAR", "DAYOFMONTH", "DAYOFWEEK", "HOUR",
        "MINUTE",
        "SECOND",
    )]  # fmt: skip
    templates += [f"TIMESTAMPADD({unit}, {n}, {{}})" for unit in UNITS for n in ("1", "-1")]
    templates += [f"TIMESTAMPDIFF({u}, {{}}, TIMESTAMP '2020-02-29 12:00:00')" for u in UNITS]
    templates += [
        "{} + INTERVAL '1' MONTH", "{} - INTERVAL '1-1' YEAR TO MONTH", "{} - INTERVAL '1' DAY",
        "{} + INTERVAL '1 02:03:04.567' DAY TO SECOND", "DATE_FORMAT({}, 'yyyy-MM-dd')",
        "DATE_FORMAT({}, 'yy D E a hh kk SSS G')", "CAST({} AS STRING)",
        "TO_TIMESTAMP_LTZ(EXTRACT(EPOCH FROM {}), 0)", "{} = DATE '2020-02-29'",
    ]  # fmt: skip
    cases = [
        *_calls(*templates, values=VALUES["TIMESTAMP(3)"], kind="TIMESTAMP(3)"),
        *_calls(*templates, values=VALUES["DATE"], kind="DATE"),
        *_calls(*templates, values=VALUES["TIME(0)"], kind="TIME(0)"),
    ]
    yield from _sample(rng, cases, 240)
    moments = ("-1", "0", "1600000000", "253402300800", "9223372036854775807", "-62167219201")
    yield from _calls(
        "FROM_UNIXTIME({})", "TO_TIMESTAMP_LTZ({}, 0)", "TO_TIMESTAMP_LTZ({}, 3)",
        "FROM_UNIXTIME({}, 'yyyy')", values=moments, kind="BIGINT",
    )  # fmt: skip


def nested(rng: random.Random) -> Iterator[str]:
    arrays = (
        "CAST(NULL AS ARRAY<DOUBLE>)", "ARRAY_REMOVE(ARRAY[1E0], 1E0)",
        "ARRAY[CAST('NaN' AS DOUBLE), 1E0, CAST(NULL AS DOUBLE), CAST('NaN' AS DOUBLE)]",
        "ARRAY[CAST(NULL AS DOUBLE)]", "ARRAY[CAST('-0.0' AS DOUBLE), 0E0, 2E0]",
        "ARRAY[3E0, 1E0, 2E0, 1E0]",
    )  # fmt: skip
    items = ("1E0", "0E0", "CAST('NaN' AS DOUBLE)", "CAST(NULL AS DOUBLE)")
    one = ("ARRAY_DISTINCT(@)", "ARRAY_MAX(@)", "ARRAY_MIN(@)", "ARRAY_REVERSE(@)", "ARRAY_SORT(@)",
           "ARRAY_SORT(@, FALSE)", "CARDINALITY(@)", "ELEMENT(@)", "@[1]", "@[-1]", "@[9]", "@[0]",
           "ARRAY_SLICE(@, 2)", "ARRAY_SLICE(@, -2, -1)", "ARRAY_SLICE(@, 0, 0)",
           "ARRAY_SLICE(@, 3, 2)", "ARRAY_SLICE(@, -9, 9)",
           "ARRAY_SORT(@, TRUE, FALSE)")  # fmt: skip
    two = ("ARRAY_APPEND(@, #)", "ARRAY_PREPEND(@, #)", "ARRAY_CONTAINS(@, #)",
           "ARRAY_POSITION(@, #)", "ARRAY_REMOVE(@, #)")  # fmt: skip
    both = ("ARRAY_CONCAT(@, #)", "ARRAY_UNION(@, #)", "ARRAY_EXCEPT(@, #)",
            "ARRAY_INTERSECT(@, #)", "@ = #", "MAP_FROM_ARRAYS(@, #)")  # fmt: skip
    yield from [t.replace("@", a) for t, a in product(one, arrays)]
    pairs = [*product(two, arrays, items), *product(both, arrays, arrays)]
    yield from _sample(rng, [t.replace("@", a).replace("#", b) for t, a, b in pairs], 80)
    maps = (
        "MAP['a', 1, 'a', 2]", "MAP['a', 1, 'b', CAST(NULL AS INT)]",
        "MAP[CAST(NULL AS STRING), 1, CAST(NULL AS STRING), 2]", "MAP['b', 1, 'a', 2, 'b', 3]",
        "CAST(NULL AS MAP<STRING, INT>)", "MAP_FROM_ARRAYS(ARRAY['a', 'b', 'a'], ARRAY[1, 2, 3])",
        "MAP_FROM_ARRAYS(ARRAY['a', 'b'], ARRAY[1])",
    )  # fmt: skip
    of_map = ("@", "MAP_KEYS(@)", "MAP_VALUES(@)", "MAP_ENTRIES(@)", "CARDINALITY(@)", "@['a']",
              "@['z']", "MAP_UNION(@, MAP['a', 9, 'z', 0])", "@[CAST(NULL AS STRING)]",
              "@ = MAP['a', 2]", "MAP_UNION(MAP['a', 9], @)")  # fmt: skip
    yield from [t.replace("@", m) for t, m in product(of_map, maps)]
    texts = ("ARRAY['a', CAST(NULL AS STRING), '']", "ARRAY[CAST(NULL AS STRING)]",
             "CAST(NULL AS ARRAY<STRING>)")  # fmt: skip
    joins = ("ARRAY_JOIN(@, ',')", "ARRAY_JOIN(@, '', '?')", "ARRAY_JOIN(@, CAST(NULL AS STRING))")
    yield from [t.replace("@", a) for t, a in product(joins, texts)]
    yield from ("ROW(1, NULL)", "CAST(ROW(1, 'a') AS ROW<x INT, y STRING>).y",
                "ROW(1, 2) = ROW(1, CAST(NULL AS INT))", "(1, 2) = (1, 2)")  # fmt: skip


def json_texts(rng: random.Random) -> Iterator[str]:
    templates = (
        "JSON_VALUE({}, #)", "JSON_QUERY({}, #)", "JSON_EXISTS({}, #)",
        "JSON_VALUE({}, # DEFAULT 'E' ON EMPTY DEFAULT 'F' ON ERROR)",
        "JSON_VALUE({}, # RETURNING INTEGER)", "JSON_VALUE({}, # RETURNING BOOLEAN)",
        "JSON_VALUE({}, # RETURNING DOUBLE)", "JSON_VALUE({}, # ERROR ON ERROR)",
        "JSON_VALUE({}, # ERROR ON EMPTY)",
        "JSON_VALUE({}, # RETURNING INTEGER DEFAULT 7 ON EMPTY DEFAULT 8 ON ERROR)",
        "JSON_QUERY({}, # WITH WRAPPER)", "JSON_QUERY({}, # WITH CONDITIONAL WRAPPER)",
        "JSON_QUERY({}, # WITH UNCONDITIONAL WRAPPER)",
        "JSON_QUERY({}, # EMPTY ARRAY ON EMPTY EMPTY OBJECT ON ERROR)",
        "JSON_QUERY({}, # ERROR ON EMPTY)", "JSON_QUERY({}, # ERROR ON ERROR)",
        "JSON_EXISTS({}, # TRUE ON ERROR)", "JSON_EXISTS({}, # UNKNOWN ON ERROR)",
        "JSON_EXISTS({}, # ERROR ON ERROR)",
    )  # fmt: skip
    cases = [
        template.replace("{}", value(document)).replace("#", quoted(path))
        for template, document, path in product(templates, DOCUMENTS, PATHS)
    ]
    yield from _sample(rng, cases, 280)
    sensible = [
        template.replace("{}", value(DOCUMENTS[0])).replace("#", quoted(path))
        for template, path in product(templates, PATHS)
    ]
    yield from _sample(rng, sensible, 200)
    yield from _calls("{} IS JSON", "{} IS JSON SCALAR", "{} IS JSON ARRAY", "{} IS JSON OBJECT",
                      values=DOCUMENTS)  # fmt: skip
    values = [value(text, kind) for kind, texts in VALUES.items() for text in texts[:4]]
    yield from _sample(rng, [f"JSON_OBJECT('k' VALUE {v})" for v in values], 20)
    yield from _sample(rng, [f"JSON_ARRAY({v} NULL ON NULL)" for v in values], 12)
    yield from _sample(rng, [f"JSON_STRING({v})" for v in values], 12)


def expressions(seed: int = 32) -> list[str]:
    """All generated expressions, without duplicates, in a fixed order."""
    rng = random.Random(seed)
    kinds = (
        times_of_texts, numbers_of_texts, pairs_of_types, texts, numbers, times, nested, json_texts
    )  # fmt: skip
    return list(dict.fromkeys(case for kind in kinds for case in kind(rng)))


def fixture_text(answers: Sequence[object]) -> str:
    """The fixture of Flink's answers: texts, None for null, dicts with an `error`."""
    lines = [{"expressions": _digest(), "flink": "1.20.3"}, *map(_answer, answers)]
    return "".join(json.dumps(line) + "\n" for line in lines)


def _answer(answer: object) -> object:
    if not isinstance(answer, dict) or "error" not in answer:
        return answer
    if "No match found for function signature" in answer["error"]:
        return UNKNOWN
    # The value is null, and Flink takes its type for NOT NULL.
    return None if "a null value is being written" in answer["error"] else ERROR


def _digest() -> str:
    return hashlib.sha256("\n".join(expressions()).encode()).hexdigest()


def cases() -> list[tuple[str, Answer]]:
    """Each expression with Flink's answer; the functions that Flink does not have are left out."""
    head, *answers = map(json.loads, FIXTURE.read_text().splitlines())
    assert head["expressions"] == _digest(), "run scripts/flink_odd_inputs.py"
    pairs = zip(expressions(), answers, strict=True)
    return [(expression, answer) for expression, answer in pairs if answer is not UNKNOWN]
