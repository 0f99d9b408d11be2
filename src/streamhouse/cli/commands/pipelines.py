"""`streamhouse pipelines`: lists the pipelines of a warehouse, with their state and progress."""

import json
import sys
from collections.abc import Iterator
from typing import Any

from streamhouse.cli.flags import DEFAULT_WAREHOUSE, open_warehouse, with_flags

_STYLES = {"running": "green", "stopped": "dim", "failed": "red"}
_COLUMNS = ("pipeline", "state", "query", "rows/s", "lag", "batches", "last batch", "")


@with_flags("pipelines")
def pipelines(
    warehouse: str = DEFAULT_WAREHOUSE,
    option: list[str] | None = None,
    forget: list[str] | None = None,
    as_json: bool = False,
) -> None:
    """List the pipelines of a warehouse with their state, throughput and lag.

    Pipelines that have ended are listed, too, with their error, if any, until --forget removes
    them. A pipeline updates its status about once a second.
    """
    from streamhouse.runtime.monitoring.status import Statuses
    from streamhouse.serve.pipelines.listing import all_pipelines

    statuses = Statuses(open_warehouse(warehouse, option).options)
    for name in forget or ():
        statuses.forget(name)
        print(f"pipeline '{name}' is forgotten", file=sys.stderr)
    listed = all_pipelines(statuses)
    if as_json:
        print(json.dumps({"pipelines": listed}, ensure_ascii=False))
    elif listed:
        from streamhouse.cli.output import print_listing

        print_listing(_COLUMNS, ("rows/s", "lag", "batches", "last batch"), _rows(listed))
    else:
        print("no pipeline has run in this warehouse; `streamhouse run` starts one")


def _rows(listed: list[dict[str, Any]]) -> Iterator[tuple[str | tuple[str, str], ...]]:
    for pipeline in listed:
        name, state, error = pipeline["name"], pipeline["state"], _error(pipeline)
        for query in pipeline["queries"] or [None]:
            cells = ["", "", "", "", ""] if query is None else _cells(query)
            yield name, (state, _STYLES.get(state, "")), *cells, (error, "red")
            name = state = error = ""


def _cells(query: dict[str, Any]) -> list[str]:
    duration = query["last_batch_ms"]
    notes = ["recomputed"] if query["strategy"] == "recomputed" else []
    if query["view_rows"] is not None:
        notes.append(f"{query['view_rows']:,} {'row' if query['view_rows'] == 1 else 'rows'}")
    if query["state_bytes"]:
        notes.append(f"keeps {query['state_bytes'] / 1_000_000:,.1f} MB")
    return [
        f"{query['name']} ({', '.join(notes)})" if notes else query["name"],
        f"{query['rows_per_second']:,.0f}",
        lag_text(query["lag"]),
        f"{query['batches']:,}",
        "" if duration is None else f"{duration:,.0f} ms",
    ]


def lag_text(lag: dict[str, Any] | None) -> str:
    """The lag of a query in its largest known unit; empty if it is unknown."""
    if lag is None:
        return ""
    units = [unit for unit in ("rows", "snapshots", "bytes") if lag[unit] is not None]
    text = f"{lag[units[0]]:,} {units[0]}" if units else ""
    if lag["seconds"] is not None:
        text = f"{lag['seconds']:,.1f} s"
    waiting = lag.get("waiting_rows")
    return f"{text} ({waiting:,} rows wait for compaction)".strip() if waiting else text


def _error(pipeline: dict[str, Any]) -> str:
    if pipeline["state"] == "failed":
        return pipeline["last_error"] or ""
    restarts = pipeline["restarts"]
    return "" if not restarts else f"restarted {restarts} times: {pipeline['last_error']}"
