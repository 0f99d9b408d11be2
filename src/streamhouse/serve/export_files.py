"""Writes a table or a view to a file, and replaces the file atomically for each new snapshot."""

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, TypeAlias

import pyarrow as pa

from streamhouse.close_matches import nearest
from streamhouse.duckdb_engine import Batches, Limits, bounded_reader
from streamhouse.durable_files import fsync
from streamhouse.errors import DataLossError, OptionError, TableError
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.read.table import Table
from streamhouse.runtime.batch.progress_line import ProgressLine
from streamhouse.serve.formats.row_formats import RowFormat
from streamhouse.serve.queries.output import OutputTarget, RowsOrigin, RowsRequest, write_export
from streamhouse.serve.queries.view_rows import RowsSource, cast_rows
from streamhouse.serve.views.served_view import ServedView
from streamhouse.sql.plan import BoundedQuery, BoundedScan
from streamhouse.work_folder import work_folder

OnRows: TypeAlias = Callable[[int], None]
"""Callback with the number of rows read since the last call; it may raise to stop the reading."""


_TRIES = 5
"""How many attempts there are if the snapshot expires while it is read."""


class Extract:
    """The rows of a table, a branch (`db.t$branch_b`) or a view as of one point in time.

    `columns` are the wanted columns, by default all. `as_of` is a tag, a snapshot id, a time in UTC
    or a duration such as `5 min ago`, by default now; each table of a view is read as of that point
    in time. The rows of a table with a primary key are in the key's order, those of a view in its
    query's.

    `snapshot` and `time_ms` (the commit time in milliseconds since 1970) are None before the first
    commit. For a view they are those of its table; for a view of several tables the sum of the
    snapshot ids, which increases with each commit, and the latest time. `total` is the approximate
    number of rows to read, None if unknown. Extracts of one name with the same `state` have the
    same rows. `sorted`: all is read before the first batch is returned.

    Raises `TableError`, `SqlError` or `DataLossError` if something is missing; the message names
    what exists instead.
    """

    def __init__(
        self,
        warehouse: Warehouse,
        name: str,
        columns: Sequence[str] | None = None,
        as_of: str | None = None,
    ) -> None:
        if "." not in name:
            raise TableError(f"'{name}' names no database; write database.table")
        self.name = name
        target, wanted = OutputTarget("", RowFormat.JSON, 0, 0), tuple(columns or ()) or None
        request = RowsRequest(ServedView(name, name), target, Limits(), wanted, as_of=as_of)
        self._source = source = RowsSource(warehouse, request, None)
        for column in wanted or ():
            if column not in source.names:
                hint = nearest(column, source.names)
                raise TableError(f"'{name}' has no column '{column}'; {hint}")
        pin, pins = source.pin, source.pins
        self._names = list(dict.fromkeys(wanted or source.names))
        self.total = None if pin is None else 0 if pin.snapshot is None else pins.records
        self._plan: BoundedQuery | None = None
        if pin is None or _sortable(pin.table):
            try:
                self._plan = source.plan()
            except TableError:
                # A table of a view was just dropped: the error names the view.
                RowsSource(warehouse, request, None).plan()
                raise
        self.sorted = self._plan is not None
        self.snapshot, self.time_ms = pins.snapshot, pins.time_ms
        self.state = f"{self._plan.sql if self._plan else ''}\n{pins.stamp}"

    @contextlib.contextmanager
    def open(self, on_rows: OnRows) -> Iterator[tuple[pa.Schema, Iterator[pa.RecordBatch]]]:
        """Start the reading: sorted by DuckDB, which spills to disk, or by the query of a view."""
        source, plan = self._source, self._plan
        if plan is None:
            assert source.pin is not None
            rows = source.pin.read(self._names)
            yield source.pin.shown.read_schema(self._names), _with_progress(rows, on_rows)
            return

        def counting_scanner(scan: BoundedScan) -> tuple[pa.Schema, Batches]:
            schema, read = source.pins.scanner(scan)
            return schema, lambda: _with_progress(read(), on_rows)

        with bounded_reader(plan, counting_scanner) as reader:
            schema = source.schema(reader.schema)
            yield schema, cast_rows(reader, schema)


def _sortable(table: Table) -> bool:
    """Whether the table can be sorted without losing digits.

    It needs a primary key. DuckDB's timestamps with time zone end at microseconds.
    """
    kinds = [item.type for item in table.arrow_schema]
    loses_digits = any(
        pa.types.is_timestamp(kind) and kind.unit == "ns" and kind.tz for kind in kinds
    )
    return bool(table.primary_key) and not loses_digits


def _with_progress(batches: Iterator[pa.RecordBatch], on_rows: OnRows) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        on_rows(batch.num_rows)
        yield batch


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Open a new file that replaces `path` when the `with` ends; by then it is synced to disk.

    If the `with` ends with an exception, the old file stays. The folder must exist; until then the
    file is in a locked folder in it, so that a later writer can delete what a killed one left.
    """
    with work_folder(f".{path.name}.", str(path.parent)) as folder:
        part = Path(folder, path.name)
        with part.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    fsync(path.parent)


class ExportStopped(Exception):
    """The export was stopped while it wrote; the old file is unchanged."""


@dataclass(frozen=True)
class ExportedFile:
    """A file that was written; `snapshot` is None before the first commit."""

    path: Path
    snapshot: int | None
    rows: int
    bytes: int
    seconds: float


class Exporter:
    """Writes `folder/<name>.<format>` repeatedly; not thread-safe.

    `pin` makes extracts of `name`, a table, a branch or a view. `stopped` is called between
    batches, also while the input of a sort is read. The constructor creates the folder if needed.
    """

    def __init__(
        self,
        pin: Callable[[], Extract],
        name: str,
        format: RowFormat,
        folder: Path,
        stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        if os.sep in name:
            raise TableError(f"'{name}' cannot be the name of a file: it contains '{os.sep}'")
        self._pin = pin
        self._format = format
        self._stopped = stopped
        self._state: str | None = None
        self.path = folder / f"{name}.{format.value}"
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            raise OptionError(
                f"'{folder}' cannot be a folder, since a file is in its place; choose another "
                "folder"
            ) from None

    def write(self, progress: ProgressLine) -> ExportedFile | None:
        """Replace the file with the current rows; None if it has them already.

        Raises `ExportStopped`, and `TableError`, `SqlError` or `DataLossError` if the rows cannot
        be read; then the old file stays.
        """
        for attempt in range(1, _TRIES + 1):
            extract = self._pin()
            if extract.state == self._state:
                return None
            try:
                done = self._replace(extract, progress)
            except DataLossError:
                # The snapshot expired while it was read: retry, unless there is no newer one.
                if attempt == _TRIES or self._pin().state == extract.state:
                    raise
            else:
                self._state = extract.state
                return done
        raise AssertionError("the last attempt returns or raises")

    def _replace(self, extract: Extract, progress: ProgressLine) -> ExportedFile:
        began, count = time.monotonic(), 0

        def step(rows: int) -> None:
            if self._stopped():
                raise ExportStopped
            progress.advance(rows)

        def counted(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            nonlocal count
            for number, batch in enumerate(batches):
                # Unsorted rows are read while they are written, and the reading reports progress.
                if extract.sorted and number == 0:
                    progress.part("writing", None)
                count += batch.num_rows
                yield batch
                if extract.sorted:
                    step(batch.num_rows)

        progress.part("reading", extract.total)
        origin = RowsOrigin(extract.name, extract.snapshot, extract.time_ms)
        with replacing(self.path) as out, extract.open(step) as (schema, batches):
            write_export(self._format, out, origin, schema, counted(batches))
            out.flush()
            size = out.tell()
        seconds = time.monotonic() - began
        return ExportedFile(self.path, extract.snapshot, count, size, seconds)
