"""`WATERMARK FOR column AS expression`: parsed and checked, without effect (decision 090)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot.tokenizer_core import Token

from streamhouse.sql.parser import elements
from streamhouse.sql.parser.token_cursor import Cursor
from streamhouse.sql.plan import Column, ComputedColumn
from streamhouse.sql.types import base


@dataclass(frozen=True)
class Watermark:
    """A table's watermark: the column of the time, and where the script names it."""

    column: str
    start: int

    def check(
        self, cursor: Cursor, columns: Sequence[Column], computed: Sequence[ComputedColumn]
    ) -> None:
        """Raise `SqlError` unless the table has the column, and it is a TIMESTAMP."""
        if self.column not in {*(c.name for c in columns), *(c.name for c in computed)}:
            names = ", ".join(column.name for column in columns)
            message = f"WATERMARK: there is no column '{self.column}'; known: {names}"
            raise cursor.script.error(message, self.start)
        kind = next((c.type for c in columns if c.name == self.column), "TIMESTAMP")
        if base(kind) not in ("TIMESTAMP", "TIMESTAMP_LTZ"):
            message = f"WATERMARK: column '{self.column}' is {kind}; it must be a TIMESTAMP"
            raise cursor.script.error(message, self.start)


def parse_watermark(cursor: Cursor, earlier: Watermark | None) -> tuple[Watermark, list[Token]]:
    """The watermark, and the tokens of its expression; `earlier`: that of the table so far."""
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
    return Watermark(column, at), expression
