"""Rows of literals as a columnar table: the form of each cell, and its literals as text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

ROW = "row"
"""The column of `LiteralRows.table` that numbers the rows, from 0."""


@dataclass(frozen=True)
class Form:
    """Cells of one column that differ only in their literals.

    `start` and `end` are the offsets of the first such cell in the query's text, `literals` the
    offsets of its literals. `rows` are the numbers of the rows whose cell has this form. `texts`
    has one list for each literal: its value in each of these rows, as text.
    """

    start: int
    end: int
    literals: tuple[int, ...]
    rows: list[int] = field(default_factory=list)
    texts: tuple[list[str], ...] = ()


@dataclass(frozen=True, eq=False)
class LiteralRows:
    """`count` rows of literals; `columns` has the forms of each column's cells."""

    count: int
    columns: tuple[tuple[Form, ...], ...]

    @property
    def types(self) -> dict[str, str]:
        """The columns of `table` with their DuckDB types."""
        types = {ROW: "BIGINT"}
        for number, forms in enumerate(self.columns):
            if len(forms) > 1:
                types[form_column(number)] = "INTEGER"
            for index in range(max(len(form.literals) for form in forms)):
                types[text_column(number, index)] = "VARCHAR"
        return types

    def table(self) -> pa.Table:
        """One record for each row: its number, the forms of its cells, and their literals as text.

        A column with only one form has no form column. A literal that a cell does not have is null.
        """
        import pyarrow as pa

        arrays: dict[str, pa.Array] = {ROW: pa.array(range(self.count), pa.int64())}
        for number, forms in enumerate(self.columns):
            if len(forms) > 1:
                kinds = ((form, [kind] * len(form.rows)) for kind, form in enumerate(forms))
                arrays[form_column(number)] = pa.array(self._by_row(kinds), pa.int32())
            for index in range(max(len(form.literals) for form in forms)):
                texts = ((form, form.texts[index]) for form in forms if index < len(form.texts))
                arrays[text_column(number, index)] = pa.array(self._by_row(texts), pa.string())
        return pa.table(arrays)

    def _by_row(self, values: Iterable[tuple[Form, Sequence[object]]]) -> list[object]:
        """The values of the cells of forms, each at the place of its row; null for all others."""
        placed: list[object] = [None] * self.count
        for form, own in values:
            for row, value in zip(form.rows, own, strict=True):
                placed[row] = value
        return placed


def form_column(number: int) -> str:
    """The column of `LiteralRows.table` with the index of the form of each cell of a column."""
    return f"form_{number}"


def text_column(number: int, index: int) -> str:
    """The column of `LiteralRows.table` with the literal at `index` of each cell of a column."""
    return f"text_{number}_{index}"
