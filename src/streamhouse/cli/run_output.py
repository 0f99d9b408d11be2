"""What `streamhouse run` prints: results of statements, notices and reports, as text or JSON."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from streamhouse.runtime.run_output import Outcome, RunOutput

if TYPE_CHECKING:
    import pyarrow as pa

    from streamhouse.runtime.monitoring.status import QueryStatus
    from streamhouse.source import Lag

_MAX_NAMED = 3
_REPORTED = ("name", "target", "rows", "rows_per_second", "lag", "bad_records", "late_rows")
"""What a report has of each query, as JSON."""


class StartOutput(RunOutput):
    """Prints the start only, for a command with progress reports of its own."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    def notice(self, text: str) -> None:
        notice(text)

    def starting(self) -> None:
        print_stderr("starting Spark …")

    def running(self, queries: int) -> None:
        run = "query runs" if queries == 1 else "queries run"
        print_stderr(f"{queries} {run} after {time.monotonic() - self._began:.1f} s")


class TextOutput(StartOutput):
    """Prints results on standard output; notices and reports on standard error."""

    def rows(self, reader: pa.RecordBatchReader) -> None:
        from streamhouse.cli.output import write_table

        write_table(reader.schema, reader, sys.stdout)
        sys.stdout.flush()

    def changes(self, batch: pa.RecordBatch) -> None:
        from streamhouse.serve.formats.cells import table_texts

        columns: list[Any] = [table_texts(batch.column(i)) for i in range(batch.num_columns)]
        for row in zip(*columns, strict=True):
            kind, *values = (str(value) for value in row)
            pairs = zip(batch.schema.names[1:], values, strict=True)
            print(f"{kind}  " + "  ".join(f"{name}={value}" for name, value in pairs))
        sys.stdout.flush()

    def progress(self, seconds: float, queries: Sequence[QueryStatus]) -> None:
        print_stderr(progress_text(seconds, queries))

    def ended(self, outcome: Outcome, queries: Sequence[QueryStatus]) -> None:
        rows = ", ".join(f"{_rows(count)} into {name}" for name, count in totals(queries).items())
        print_stderr(f"{outcome}: {rows}{_bad_text(queries)}")


class JsonOutput(RunOutput):
    """Prints one JSON object a line on standard output; its key `event` says what it is."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    def notice(self, text: str) -> None:
        _print_json("notice", text=text)

    def rows(self, reader: pa.RecordBatchReader) -> None:
        from streamhouse.serve.formats.row_formats import json_objects

        for batch in reader:
            for row in json_objects(batch):
                _print_json("row", row=row)

    def changes(self, batch: pa.RecordBatch) -> None:
        from streamhouse.serve.formats.row_formats import json_objects

        kinds = batch.column(0).to_pylist()
        values = json_objects(batch.select(batch.schema.names[1:]))
        for kind, row in zip(kinds, values, strict=True):
            _print_json("change", rowkind=kind, row=row)

    def starting(self) -> None:
        _print_json("starting")

    def running(self, queries: int) -> None:
        _print_json("running", queries=queries, took_s=round(time.monotonic() - self._began, 2))

    def progress(self, seconds: float, queries: Sequence[QueryStatus]) -> None:
        _print_json("progress", seconds=round(seconds, 1), queries=list(map(_record, queries)))

    def ended(self, outcome: Outcome, queries: Sequence[QueryStatus]) -> None:
        late = sum(query.late_rows for query in queries)
        _print_json(
            outcome, rows=totals(queries), bad_records=_bad_records(queries), late_rows=late
        )

    def failed(self, message: str) -> None:
        _print_json("failed", error=message)


def totals(queries: Sequence[QueryStatus]) -> Mapping[str, int]:
    """The rows for each target, of all queries that write it."""
    rows: dict[str, int] = {}
    for query in queries:
        rows[query.target] = rows.get(query.target, 0) + query.rows
    return rows


def _bad_records(queries: Sequence[QueryStatus]) -> int:
    return sum(query.bad_records for query in queries)


def _bad_text(queries: Sequence[QueryStatus]) -> str:
    count, late = _bad_records(queries), sum(query.late_rows for query in queries)
    bad = f"; {count:,} bad record{'' if count == 1 else 's'} skipped" if count else ""
    return f"{bad}; {late:,} late row{'' if late == 1 else 's'} kept aside" if late else bad


def progress_text(seconds: float, queries: Sequence[QueryStatus]) -> str:
    """The progress in one line: rows, rate and lag of each query, or those of many together."""
    if len(queries) <= _MAX_NAMED:
        each = [
            f"{_rows(query.rows)} into {query.target} ({', '.join(_details(query))})"
            for query in queries
        ]
        return f"after {seconds:.0f} s: {'; '.join(each)}{_bad_text(queries)}"
    rate = sum(query.rows_per_second for query in queries)
    rows = _rows(sum(query.rows for query in queries))
    late = [(query.lag.seconds or 0.0, query) for query in queries if query.lag is not None]
    late = sorted((lag for lag in late if lag[0] >= 0.05), key=lambda lag: lag[0], reverse=True)
    behind = ", ".join(f"{query.target} {seconds:.1f} s" for seconds, query in late[:_MAX_NAMED])
    return (
        f"after {seconds:.0f} s: {rows} into {len(totals(queries))} tables ({rate:,.0f} rows/s); "
        + (f"behind: {behind}" if behind else "none is behind")
        + _bad_text(queries)
    )


def _details(query: QueryStatus) -> list[str]:
    lag = [] if query.lag is None else _lag_texts(query.lag)
    return [f"{query.rows_per_second:,.0f} rows/s", *lag]


def _lag_texts(lag: Lag) -> list[str]:
    """How far a query is behind; empty if that is unknown."""
    texts = []
    if lag.seconds is not None:
        texts.append(f"{lag.seconds:,.1f} s behind" if lag.seconds >= 0.05 else "not behind")
    if lag.rows:
        texts.append(f"{_rows(lag.rows)} to read")
    elif lag.snapshots:
        texts.append(f"{lag.snapshots:,} snapshots to read")
    elif lag.bytes:
        texts.append(f"{lag.bytes:,} bytes of the binlog to read")
    if lag.waiting_rows:
        texts.append(f"{_rows(lag.waiting_rows)} visible after a compaction")
    return texts


def _rows(count: int) -> str:
    return f"{count:,} row{'' if count == 1 else 's'}"


def _record(query: QueryStatus) -> dict[str, Any]:
    record = {key: getattr(query, key) for key in _REPORTED}
    if query.lag is not None:
        record["lag"] = query.lag.parts
    return record


def _print_json(event: str, **values: Any) -> None:
    record = {"event": event, **values}
    print(json.dumps(record, ensure_ascii=False, allow_nan=False), flush=True)


def notice(text: str) -> None:
    """Print a notice on standard error."""
    print_stderr(f"notice: {text}")


def print_stderr(text: str) -> None:
    """Print a line on standard error, at once."""
    print(text, file=sys.stderr, flush=True)
