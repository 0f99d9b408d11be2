"""Prints tables on a terminal."""

import sys
from collections.abc import Container, Iterable, Sequence
from typing import IO, Any

import pyarrow as pa

from streamhouse.serve.formats.cells import is_number, table_texts

MAX_TABLE_ROWS = 1000
"""How many rows `write_table` prints; JSON and CSV have no limit."""


def write_table(schema: pa.Schema, reader: Iterable[pa.RecordBatch], out: IO[str]) -> None:
    """Print a table for people: at most `MAX_TABLE_ROWS` rows, then how many there are."""
    from rich.text import Text

    printed: list[pa.RecordBatch] = []
    total = 0
    for batch in reader:
        if total < MAX_TABLE_ROWS:
            printed.append(batch.slice(0, MAX_TABLE_ROWS - total))
        total += batch.num_rows
    rows = pa.Table.from_batches(printed, schema)
    texts = [table_texts(rows.column(i)) for i in range(rows.num_columns)]
    cells = [[null() if t is None else Text(t) for t in row] for row in zip(*texts, strict=True)]
    console(out).print(grid(schema, cells))
    note = f"{total:,} row{'' if total == 1 else 's'}"
    if total > rows.num_rows:
        note += f", only the first {rows.num_rows:,} printed; --format csv or json prints all"
    console(out).print(Text(note, style="dim"))


def write_rows(
    format: str, schema: pa.Schema, reader: Iterable[pa.RecordBatch], out: IO[str]
) -> None:
    """Print rows as `json`, as `csv`, or as a `table` for people."""
    from streamhouse.serve.formats.row_formats import write_csv, write_json

    match format:
        case "json":
            write_json(reader, out)
        case "csv":
            write_csv(schema, reader, out)
        case _:
            write_table(schema, reader, out)


def grid(
    schema: pa.Schema,
    rows: Sequence[Sequence[Any]],
    overflow: str = "fold",
    key: Sequence[str] = (),
) -> Any:
    """A `rich` table of given cells; numbers right-aligned, names of key columns underlined."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.ROUNDED, header_style="bold", show_edge=True)
    for field in schema:
        table.add_column(
            Text(field.name, style="underline" if field.name in key else ""),
            justify="right" if is_number(field.type) else "left",
            overflow="ellipsis" if overflow == "ellipsis" else "fold",
            no_wrap=overflow == "ellipsis" or is_number(field.type),
        )
    for row in rows:
        table.add_row(*row)
    return table


def print_listing(
    heads: Sequence[str], numbers: Container[str], rows: Iterable[Iterable[str | tuple[str, str]]]
) -> None:
    """Print rows of texts, or of pairs of text and style, to standard output.

    The columns `numbers` are right-aligned, long texts wrapped.
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.ROUNDED)
    for head in heads:
        table.add_column(head, justify="right" if head in numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(*((cell,) if isinstance(cell, str) else cell)) for cell in row))
    console(sys.stdout).print(table)


def null() -> Any:
    """The cell of a null."""
    from rich.text import Text

    return Text("NULL", style="dim italic")


def console(out: IO[str]) -> Any:
    """A console on `out`; if that is not a terminal, as wide as its tables need."""
    from rich.console import Console

    if out.isatty():
        return Console(file=out, highlight=False, markup=False, emoji=False)
    return Console(file=out, highlight=False, markup=False, emoji=False, width=100_000)
