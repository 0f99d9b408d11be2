"""`WATERMARK FOR column AS expression`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sqlglot.tokenizer_core import Token

from streamhouse.sql.parser import elements
from streamhouse.sql.parser.token_cursor import Cursor
from streamhouse.sql.plan import Column, ComputedColumn, Watermark
from streamhouse.sql.types import base

TIME_OPTION, EXPRESSION_OPTION = "schema.watermark.0.rowtime", "schema.watermark.0.strategy.expr"
"""The options with which Paimon's Flink catalog stores a table's watermark."""


@dataclass(frozen=True)
class WatermarkClause:
    """A watermark, and where the script names the column of its time."""

    watermark: Watermark
    start: int

    def check(
        self, cursor: Cursor, columns: Sequence[Column], computed: Sequence[ComputedColumn]
    ) -> None:
        """Raise `SqlError` unless the table has the column, and it is a TIMESTAMP."""
        name = self.watermark.column
        if name not in {*(c.name for c in columns), *(c.name for c in computed)}:
            names = ", ".join(column.name for column in columns)
            message = f"WATERMARK: there is no column '{name}'; known: {names}"
            raise cursor.script.error(message, self.start)
        kind = next((c.type for c in columns if c.name == name), "TIMESTAMP")
        if base(kind) not in ("TIMESTAMP", "TIMESTAMP_LTZ"):
            message = f"WATERMARK: column '{name}' is {kind}; it must be a TIMESTAMP"
            raise cursor.script.error(message, self.start)


def parse_watermark(
    cursor: Cursor, earlier: WatermarkClause | None, check: Callable[[Cursor, list[Token]], None]
) -> WatermarkClause:
    """Parse the clause; `earlier`: that of the table so far. `check` checks the expression."""
    start = cursor.offset
    cursor.expect("WATERMARK", "FOR")
    if earlier is not None:
        raise cursor.script.error("a table has one WATERMARK; this is the second", start)
    at = cursor.offset
    column = elements.identifier(cursor, "the column of the time")
    cursor.expect("AS")
    expression = cursor.until(",")
    if not expression:
        cursor.fail("expected an expression")
    check(cursor, expression)
    return WatermarkClause(Watermark(column, cursor.text_of(expression)), at)
