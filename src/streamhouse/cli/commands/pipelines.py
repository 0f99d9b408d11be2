"""`streamhouse pipelines`: lists the pipelines of a warehouse, with their state and progress."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any

import typer

from streamhouse.cli.arguments import (
    DEFAULT_WAREHOUSE,
    OptionsArgument,
    WarehouseArgument,
    open_warehouse,
)

_STYLES = {"running": "green", "stopped": "dim", "failed": "red"}
_COLUMNS = ("pipeline", "state", "query", "rows/s", "behind", "batches", "last batch", "")


def pipelines(
    warehouse: WarehouseArgument = DEFAULT_WAREHOUSE,
    option: OptionsArgument = None,
    forget: Annotated[
        list[str] | None,
        typer.Option(
            "--forget",
            metavar="NAME",
            help="Forget one that has ended: its status, script and log, not its tables or "
            "checkpoints; may be given several times.",
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print all that is known as one JSON object.")
    ] = False,
) -> None:
    """List the pipelines of a warehouse: whether they run, how fast, how far behind.

    Those that have ended are there too, with the error if there was one, until they are forgotten.
    A pipeline tells of itself about once a second.
    """
    from streamhouse.serve.pipelines.listing import Pipelines

    known = Pipelines(open_warehouse(warehouse, option).options)
    for name in forget or ():
        known.forget(name)
        print(f"pipeline '{name}' is forgotten", file=sys.stderr)
    found = known.all()
    if as_json:
        print(json.dumps({"pipelines": found}, ensure_ascii=False))
    elif found:
        from streamhouse.cli.output import print_wide

        print_wide(_table(found), sys.stdout)
    else:
        print("no pipeline has run in this warehouse; `streamhouse run` starts one")


def _table(found: list[dict[str, Any]]) -> Any:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.ROUNDED)
    for head in _COLUMNS:
        right = head in ("rows/s", "behind", "batches", "last batch")
        table.add_column(head, justify="right" if right else "left", overflow="fold")
    for one in found:
        lines = one["queries"] or [None]
        for number, query in enumerate(lines):
            cells = ["", "", "", "", ""] if query is None else _cells(query)
            state = Text(one["state"], style=_STYLES[one["state"]]) if number == 0 else Text()
            name = Text(one["name"] if number == 0 else "")
            error = Text(_error(one) if number == 0 else "", style="red")
            table.add_row(name, state, *map(Text, cells), error)
    return table


def _cells(query: dict[str, Any]) -> list[str]:
    took = query["last_batch_ms"]
    return [
        query["name"],
        f"{query['rows_per_second']:,.0f}",
        lag_words(query["lag"]),
        f"{query['batches']:,}",
        "" if took is None else f"{took:,.0f} ms",
    ]


def lag_words(lag: dict[str, Any] | None) -> str:
    """How far behind a query is, in a word or two; empty where nobody knows."""
    if lag is None:
        return ""
    units = [unit for unit in ("rows", "snapshots", "bytes") if lag[unit] is not None]
    words = f"{lag[units[0]]:,} {units[0]}" if units else ""
    if lag["seconds"] is not None:
        words = f"{lag['seconds']:,.1f} s"
    waiting = lag.get("waiting_rows")
    return f"{words} ({waiting:,} rows wait for compaction)".strip() if waiting else words


def _error(pipeline: dict[str, Any]) -> str:
    if pipeline["state"] == "failed":
        return pipeline["last_error"] or ""
    restarts = pipeline["restarts"]
    return "" if not restarts else f"started again {restarts} times: {pipeline['last_error']}"
