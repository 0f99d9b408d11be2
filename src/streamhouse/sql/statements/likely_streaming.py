"""Guesses from a script's text alone whether it has continuous queries."""

import re

_READING_INSERT = re.compile(
    r"\b(INSERT\s+INTO|MATERIALIZED|CREATE\s+TABLE\b[^;]*\bAS\s+SELECT)\b[^;]*\bFROM\b"
    r"|\bCALL\s+(\w+\.)?sys\.sync_mysql",
    re.IGNORECASE,
)
_BATCH = re.compile(r"'execution\.runtime-mode'\s*=\s*'batch'", re.IGNORECASE)


def may_stream(script: str) -> bool:
    """Whether an INSERT or a view may read a table in streaming mode, or a CALL syncs tables.

    It needs no parser, so Spark can be started before the parser is loaded. A wrong result only
    costs time: `sql.streaming.query_planner` decides what the queries are.
    """
    return _READING_INSERT.search(script) is not None and _BATCH.search(script) is None
