"""`streamhouse watch`: prints a table, and again each time it changes."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from typing import IO, TYPE_CHECKING

from streamhouse.cli.flags import DEFAULT_WAREHOUSE, TextFormat, open_warehouse, with_flags
from streamhouse.errors import OptionError, TableError
from streamhouse.options import duration_ms
from streamhouse.paimon.storage.files import is_local

if TYPE_CHECKING:
    from streamhouse.paimon.catalog.warehouse import Warehouse
    from streamhouse.serve.feeds.feed import Feed, FeedChange

LOCAL_POLL_MS = 15
REMOTE_POLL_MS = 500
WAIT_POLL_MS = 200
TICK_S = 1.0


@with_flags("watch")
def watch(
    table: str,
    warehouse: str = DEFAULT_WAREHOUSE,
    option: list[str] | None = None,
    format: TextFormat = TextFormat.TABLE,
    every: str | None = None,
    wait: bool = False,
    as_of: str | None = None,
    consumer_id: str | None = None,
    fail_on_data_loss: bool = False,
) -> None:
    """Print a table each time it changes, until Ctrl-C.

    In a terminal the table is redrawn in place: new rows are green, changed cells are marked,
    and removed rows are named below. Elsewhere each state is printed below the previous one. With
    --format json each line is a changed row: {"snapshot": 12, "rowkind": "+U", …columns}, first all
    rows as +I, then +I, -U (before the update), +U (after it), -D. Decimals and timestamps are
    strings (all digits, ISO 8601), bytes are base64, and NaN and the infinities are strings. A
    column named snapshot or rowkind gets a trailing underscore.
    """
    every_ms = _interval(every, warehouse)
    if as_of is not None and consumer_id is not None:
        raise OptionError("options '--as-of' and '--consumer-id' cannot be combined; give one")
    if as_of is not None:
        _print_once(table, open_warehouse(warehouse, option), as_of, format)
        return
    with closing(_open(table, warehouse, option, wait, consumer_id, fail_on_data_loss)) as feed:
        if format is TextFormat.JSON:
            _print_json(_changes(feed, every_ms), sys.stdout, feed.store_progress)
        elif sys.stdout.isatty():
            _print_live(feed, every_ms, sys.stdout)
        else:
            _print_states(feed, every_ms, sys.stdout)


def _interval(every: str | None, warehouse: str) -> int:
    if every is not None:
        return duration_ms("--every", every, 1)
    return LOCAL_POLL_MS if is_local(warehouse) else REMOTE_POLL_MS


def _print_once(table: str, warehouse: Warehouse, as_of: str, format: TextFormat) -> None:
    from streamhouse.cli.output import console
    from streamhouse.cli.table_view import TableView
    from streamhouse.serve.feeds.table_feed import StaticFeed

    feed = StaticFeed(warehouse, table, as_of)
    view, change = TableView(feed), feed.poll()
    if format is TextFormat.JSON:
        _print_json(iter([change] if change is not None else []), sys.stdout)
    else:
        if change is not None:
            view.apply(change)
        console(sys.stdout).print(view.render())
    print(f"{table} as of {as_of} is a past state, which does not change", file=sys.stderr)


def _open(
    table: str,
    warehouse: str,
    option: list[str] | None,
    wait: bool,
    consumer_id: str | None,
    fail_on_data_loss: bool,
) -> Feed:
    from streamhouse.paimon.changelog.consumer_progress import ConsumerOptions
    from streamhouse.serve.feeds.table_feed import TableFeed
    from streamhouse.serve.feeds.view_feed import open_sql_view

    options = {} if consumer_id is None else {"consumer-id": consumer_id}
    consumer = ConsumerOptions.parse(options, "watch")

    if "." not in table:
        raise TableError(f"'{table}' names no database; write database.table")
    notified = False
    while True:
        opened = open_warehouse(warehouse, option)
        try:
            on_loss = None if fail_on_data_loss else partial(_print_loss, table)
            return TableFeed(opened, table, consumer=consumer, lost=on_loss)
        except TableError:
            view = open_sql_view(opened, table)
            if view is not None and consumer is not None:
                raise OptionError(
                    f"option '--consumer-id': {table} is a view, and only tables have consumers; "
                    "watch the table that it reads"
                ) from None
            if view is not None:
                return view
            if not wait:
                raise
        if not notified:
            print(f"waiting for table {table} …", file=sys.stderr, flush=True)
            notified = True
        time.sleep(WAIT_POLL_MS / 1000)


def _print_loss(table: str, first: int, last: int) -> None:
    which = f"snapshot {first}" if first == last else f"snapshots {first} to {last}"
    print(
        f"notice: {which} of {table} expired before they were printed; their rows are in the "
        f"table, but not in this output, which continues with snapshot {last + 1}. With "
        "--consumer-id the table retains the snapshots that a watch has not printed yet",
        file=sys.stderr,
        flush=True,
    )


def _polls(feed: Feed, every_ms: int) -> Iterator[FeedChange | None]:
    """Yield each change, and None about every `TICK_S` seconds without a change."""
    quiet_since = time.monotonic()
    while True:
        change = feed.poll()
        if change is not None or time.monotonic() - quiet_since >= TICK_S:
            yield change
            quiet_since = time.monotonic()
        if change is None or feed.primary_key:
            time.sleep(every_ms / 1000)


def _changes(feed: Feed, every_ms: int) -> Iterator[FeedChange]:
    return (change for change in _polls(feed, every_ms) if change is not None)


def _print_json(
    changes: Iterator[FeedChange], out: IO[str], printed: Callable[[FeedChange], None] | None = None
) -> None:
    from streamhouse.serve.formats.cells import unreserved_names
    from streamhouse.serve.formats.row_formats import json_line, json_objects

    for change in changes:
        for batch in change.batches:
            names = ["rowkind", *unreserved_names(batch.schema.names[1:])]
            for row in json_objects(batch.rename_columns(names)):
                out.write(json_line({"snapshot": change.snapshot, **row}) + "\n")
        out.flush()
        if printed is not None:
            printed(change)


def _print_states(feed: Feed, every_ms: int, out: IO[str]) -> None:
    from streamhouse.cli.output import console
    from streamhouse.cli.table_view import TableView

    view, printer = TableView(feed), console(out)
    for change in _changes(feed, every_ms):
        if view.apply(change):
            printer.print(view.render())
            printer.print()
            out.flush()
        feed.store_progress(change)


def _print_live(feed: Feed, every_ms: int, out: IO[str]) -> None:
    from rich.live import Live

    from streamhouse.cli.output import console
    from streamhouse.cli.table_view import TableView

    view, screen = TableView(feed), console(out)
    with Live(view.render(screen.height), console=screen, auto_refresh=False) as live:
        for change in _polls(feed, every_ms):
            if change is not None:
                view.apply(change)
            live.update(view.render(screen.height), refresh=True)
            if change is not None:
                feed.store_progress(change)
