"""Rows on standard output: JSON, CSV, tables."""

from __future__ import annotations

import csv
import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, Any

import pyarrow as pa

from streamhouse.cli.cells import csv_values, is_number, json_values, table_texts

MAX_TABLE_ROWS = 1000
"""How many rows `write_table` prints; people do not read more, and JSON and CSV have them all."""


def json_objects(batch: pa.RecordBatch | pa.Table) -> Iterator[dict[str, Any]]:
    """Each row as a flat object, values as `streamhouse.cli.cells` describes."""
    names = batch.schema.names
    columns = [json_values(batch.column(i)) for i in range(batch.num_columns)]
    for row in zip(*columns, strict=True):
        yield dict(zip(names, row, strict=True))


def json_line(record: dict[str, Any]) -> str:
    """One object as one line, without its end."""
    return json.dumps(record, ensure_ascii=False, allow_nan=False)


def write_json(reader: Iterable[pa.RecordBatch], out: IO[str]) -> None:
    """One array of objects, an object a line."""
    separator = "[\n"
    for batch in reader:
        for record in json_objects(batch):
            out.write(separator + json_line(record))
            separator = ",\n"
    out.write("[]\n" if separator == "[\n" else "\n]\n")


def write_csv(schema: pa.Schema, reader: Iterable[pa.RecordBatch], out: IO[str]) -> None:
    """CSV as RFC 4180 has it: a header, CRLF, quotes where needed.

    A null is an empty field, an empty string is `""`.
    """
    plain = csv.writer(out, lineterminator="\r\n")
    batches = iter(reader)
    # Nothing is written before the query has proven itself with its first rows.
    first = next(batches, None)
    plain.writerow(schema.names)
    for batch in itertools.chain([] if first is None else [first], batches):
        columns = [csv_values(batch.column(i)) for i in range(batch.num_columns)]
        for row in zip(*columns, strict=True):
            if "" in row or (len(row) == 1 and row[0] is None):
                out.write(",".join(map(_csv_field, row)) + "\r\n")
            else:
                plain.writerow(row)


def _csv_field(value: str | None) -> str:
    if value is None:
        return ""
    if value == "" or any(c in value for c in ',"\r\n'):
        return '"' + value.replace('"', '""') + '"'
    return value


def write_table(schema: pa.Schema, reader: Iterable[pa.RecordBatch], out: IO[str]) -> None:
    """A table for human eyes: at most `MAX_TABLE_ROWS` rows, then how many there are."""
    from rich.text import Text

    kept: list[pa.RecordBatch] = []
    total = 0
    for batch in reader:
        if total < MAX_TABLE_ROWS:
            kept.append(batch.slice(0, MAX_TABLE_ROWS - total))
        total += batch.num_rows
    rows = pa.Table.from_batches(kept, schema)
    texts = [table_texts(rows.column(i)) for i in range(rows.num_columns)]
    cells = [[null() if t is None else Text(t) for t in row] for row in zip(*texts, strict=True)]
    print_wide(grid(schema, cells), out)
    note = f"{total:,} row{'' if total == 1 else 's'}"
    if total > rows.num_rows:
        note += f", the first {rows.num_rows:,} shown; --format csv or json prints all"
    print_wide(Text(note, style="dim"), out)


def grid(
    schema: pa.Schema,
    rows: Sequence[Sequence[Any]],
    overflow: str = "fold",
    key: Sequence[str] = (),
) -> Any:
    """A rich table of ready cells; numbers to the right, key columns' names underlined."""
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


def null() -> Any:
    """The cell of a null."""
    from rich.text import Text

    return Text("NULL", style="dim italic")


def console(out: IO[str]) -> Any:
    """A console on `out`; one that is no terminal is as wide as its tables need."""
    from rich.console import Console

    if out.isatty():
        return Console(file=out, highlight=False, markup=False, emoji=False)
    return Console(file=out, highlight=False, markup=False, emoji=False, width=100_000)


def print_wide(renderable: Any, out: IO[str]) -> None:
    """Print to a terminal, wrapping there, or anything else, with no limit of width."""
    console(out).print(renderable)
