"""Replacements for unsupported functions: other systems' names, nondeterministic functions."""

from __future__ import annotations

_MD5_OF_KEY = "a repeated batch must return the same rows; write MD5(CONCAT_WS('-', …)) of the key"
_NONDETERMINISTIC = "a repeated batch must return the same rows; compute it from the row's columns"

_REPLACEMENTS = {
    "ARRAY": "write ARRAY[…]",
    "BINARY": "write CAST(x AS BYTES)",
    "CHAR": "write CHR(n), or CAST(x AS STRING)",
    "CURRENT_CATALOG": "use SHOW CURRENT CATALOG",
    "CURRENT_DATABASE": "use SHOW CURRENT DATABASE",
    "DESCRIPTOR": "it is an argument of windows: write FROM TUMBLE(TABLE t, DESCRIPTOR(ts), …)",
    "MAP": "write MAP[key, value, …]",
    "STRUCT": "write ROW(…)",
    "UNNEST": "it is a table: write CROSS JOIN UNNEST(array) AS t (x) in a bounded query",
    "UUID": _MD5_OF_KEY,
    "RAND": _NONDETERMINISTIC,
    "RAND_INTEGER": _NONDETERMINISTIC,
    "RANDOM": _NONDETERMINISTIC,
    "CURRENT_WATERMARK": "rows of closed windows go to <target>__late by themselves; leave it out",
    "SOURCE_WATERMARK": "no source has watermarks of its own; write ts - INTERVAL '5' SECOND",
    "DATE_ADD": "write TIMESTAMPADD(DAY, n, d), or d + INTERVAL '1' DAY",
    "DATE_SUB": "write TIMESTAMPADD(DAY, -n, d), or d - INTERVAL '1' DAY",
    "ADD_MONTHS": "write TIMESTAMPADD(MONTH, n, d), or d + INTERVAL '1' MONTH",
    "MONTHS_BETWEEN": "TIMESTAMPDIFF(MONTH, a, b) counts the whole months from a to b",
    "DATE_TRUNC": "write FLOOR(t TO MONTH)",
    "TRUNC": "write TRUNCATE(x, n) of a number, FLOOR(t TO MONTH) of a time",
    "LAST_DAY": "write CEIL((d + INTERVAL '1' DAY) TO MONTH) - INTERVAL '1' DAY",
    "DAY": "write DAYOFMONTH(d)",
    "WEEKOFYEAR": "write WEEK(d)",
    "CURDATE": "write CURRENT_DATE",
    "GETDATE": "write NOW()",
    "SYSDATE": "write NOW()",
    "STR_TO_DATE": "write TO_DATE(text, 'yyyy-MM-dd')",
    "TO_CHAR": "write DATE_FORMAT(t, 'yyyy-MM-dd') of a time, CAST(x AS STRING) of a number",
    "TO_NUMBER": "write CAST(text AS DECIMAL(20, 4))",
    "DATE": "write CAST(t AS DATE), or TO_DATE(text)",
    "TIMESTAMP": "write CAST(x AS TIMESTAMP(3)), or TO_TIMESTAMP(text)",
    "LENGTH": "write CHAR_LENGTH(text)",
    "LEN": "write CHAR_LENGTH(text)",
    "UCASE": "write UPPER(text)",
    "LCASE": "write LOWER(text)",
    "SUBSTRING_INDEX": "SPLIT_INDEX(text, separator, n) is one part of it, counted from 0",
    "SPLIT_PART": "write SPLIT_INDEX(text, separator, n), counted from 0",
    "GROUP_CONCAT": "write LISTAGG(x, ',')",
    "WM_CONCAT": "write LISTAGG(x, ',')",
    "COLLECT_LIST": "write ARRAY_AGG(x IGNORE NULLS)",
    "COLLECT_SET": "write ARRAY_AGG(DISTINCT x IGNORE NULLS)",
    "GET_JSON_OBJECT": "write JSON_VALUE(text, '$.path')",
    "JSON_EXTRACT": "write JSON_VALUE(text, '$.path')",
    "NVL2": "write CASE WHEN x IS NOT NULL THEN a ELSE b END",
    "DECODE": "write CASE x WHEN a THEN b ELSE c END",
    "ISNULL": "write x IS NULL, or IFNULL(x, y)",
    "RLIKE": "write REGEXP(text, pattern)",
    "REGEXP_LIKE": "write REGEXP(text, pattern)",
    "COUNT_DISTINCT": "write COUNT(DISTINCT x)",
    "SUMIF": "write SUM(CASE WHEN condition THEN x END)",
    "COUNTIF": "write COUNT(*) FILTER (WHERE condition)",
}
_TYPES = (
    "BIGINT", "BOOLEAN", "BYTES", "DECIMAL", "DOUBLE", "FLOAT", "INT", "INTEGER", "SMALLINT",
    "STRING", "TIME", "TINYINT", "VARBINARY", "VARCHAR",
)  # fmt: skip


def replacement_for(name: str) -> str | None:
    """What to write instead of a function (`name` in upper case); None if no hint is known."""
    if name in _TYPES:
        return f"write CAST(x AS {name})"
    return _REPLACEMENTS.get(name)
