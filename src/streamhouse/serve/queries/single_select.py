"""Parses a text that must be exactly one SELECT."""

from __future__ import annotations

from streamhouse.errors import SqlError
from streamhouse.sql.statements.script import parse_script
from streamhouse.sql.syntax import Query, Select


def parse_single_select(sql: str) -> Query:
    """The query of a text that is exactly one SELECT; `SqlError` for anything else."""
    statements = parse_script(sql)
    if len(statements) == 1 and isinstance(statements[0], Select):
        return statements[0].query
    if not statements:
        raise SqlError("there is no statement; write one SELECT")
    other = next((s for s in statements if not isinstance(s, Select)), statements[-1])
    raise SqlError(
        "a query takes one SELECT and nothing else; `streamhouse run` runs scripts",
        line=other.position.line,
        column=other.position.column,
        source_line=sql.splitlines()[other.position.line - 1],
        snippet=other.text,
    )
