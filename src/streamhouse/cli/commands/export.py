"""`streamhouse export`: writes a table or view to a file, again when it changes."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from streamhouse.background import in_background, wait_until
from streamhouse.cli.errors import INTERRUPTED, StopSignal
from streamhouse.cli.flags import DEFAULT_WAREHOUSE, open_warehouse, with_flags
from streamhouse.errors import OptionError
from streamhouse.options import duration_ms
from streamhouse.serve.formats.row_formats import RowFormat

if TYPE_CHECKING:
    from streamhouse.serve.export_files import ExportedFile, Exporter

STEP_S = 0.05


@with_flags("export")
def export(
    view: str,
    to: Path,
    warehouse: str = DEFAULT_WAREHOUSE,
    option: list[str] | None = None,
    format: RowFormat = RowFormat.JSON,
    every: str | None = None,
    columns: str | None = None,
    as_of: str | None = None,
    quiet: bool = False,
) -> None:
    """Write a table or view to the file DIR/database.view.format, once or each time it changes.

    The file is replaced atomically: a reader sees the old one or the new one. With --every it is
    written again for each new snapshot, until Ctrl-C (exit code 130) or SIGTERM (0).

    json is {"snapshot": 17, "time": "…Z", "rows": […]}, with decimals and timestamps as strings;
    csv is RFC 4180; parquet and arrow have the columns' own types, and the snapshot id in their
    metadata. Rows of a table with a primary key are in the order of the key.
    """
    interval = None if every is None else duration_ms("--every", every, 1) / 1000
    if interval is not None and as_of is not None:
        raise OptionError(
            "options '--every' and '--as-of' cannot be combined: a past state does not change"
        )
    stop = StopSignal(notice="stopping …")
    opened = open_warehouse(warehouse, option)

    from streamhouse.serve.export_files import Exporter, ExportStopped, Extract

    names = None if columns is None else _names(columns)
    pin = partial(Extract, opened, view, names, as_of)
    exporter = Exporter(pin, view, format, to, stop.requested)
    try:
        for written in _files(exporter, interval, stop):
            if not quiet:
                print(_line(view, written), file=sys.stderr, flush=True)
    except ExportStopped:
        assert stop.requested()
    if stop.interrupted or (stop.requested() and interval is None):
        raise typer.Exit(INTERRUPTED)


def _files(exporter: Exporter, interval: float | None, stop: StopSignal) -> Iterator[ExportedFile]:
    """Write the file, and yield each time; with an interval, until a stop is requested."""
    from streamhouse.runtime.batch.progress_line import progress

    while not stop.requested():
        started = time.monotonic()
        with progress() as report:
            # Only the main thread handles signals, and not during a call of a library.
            written = in_background(partial(exporter.write, report), "streamhouse-export").result()
        if written is not None:
            yield written
        if interval is None:
            return
        wait_until(stop.requested, started + interval - time.monotonic(), STEP_S)


def _names(columns: str) -> list[str]:
    names = [name.strip() for name in columns.split(",") if name.strip()]
    if not names:
        raise OptionError("option '--columns' is empty; write column names, separated by commas")
    return names


def _line(view: str, written: ExportedFile) -> str:
    from rich.filesize import decimal

    snapshot = written.snapshot
    state = "no snapshot yet" if snapshot is None else f"snapshot {snapshot}"
    rows = f"{written.rows:,} row{'' if written.rows == 1 else 's'}"
    size = f"{decimal(written.bytes)} in {written.seconds:.2f} s"
    return f"{view}: {state}, {rows}, {size}: {written.path}"
