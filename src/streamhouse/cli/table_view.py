"""Renders a watched table: its rows, what changed in them, and how fresh they are."""

import datetime
import time
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from streamhouse.cli.output import grid, null
from streamhouse.serve.feeds.feed import Feed, FeedChange
from streamhouse.serve.formats.cells import printable, table_texts

MAX_ROWS = 1000
"""Rows kept for display; more than any terminal shows, and enough for plain output."""

PLAIN_ADDED_ROWS = 20
"""How many of the newest rows of an append table plain output prints at each commit."""

MAX_REMOVED = 5
"""How many removed rows are named."""
FRAME_LINES = 8
"""Lines besides the rows: the title (up to two), the table's header and borders, a note."""

NEW, CHANGED, REMOVED = "green", "bold black on yellow", "red"


class TableView:
    """The state of one watched table, and what the last change did to it.

    A table with a primary key shows its first rows in the order of the key; an append table its
    newest ones.
    """

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._change: FeedChange | None = None
        self._rows: pa.Table = feed.schema.empty_table()
        self._before: dict[tuple[Any, ...], tuple[Any, ...] | None] = {}
        self._new_from = 0
        self._removed: list[str] = []
        self._latency_ms = 0.0

    def apply(self, change: FeedChange) -> bool:
        """Update the view; returns whether any row changed."""
        self._change = change
        self._before, self._removed = {}, []
        changed = (
            self._apply_keyed(change) if self._feed.primary_key else self._apply_appended(change)
        )
        self._latency_ms = time.time() * 1000 - change.commit_time_ms
        return changed

    def render(self, height: int | None = None) -> Any:
        """What to print; `height` is that of the terminal; None: unlimited, without marks."""
        from rich.console import Group
        from rich.text import Text

        rows, cut = self._visible(height)
        parts: list[Any] = [self._title(live=height is not None)]
        parts.append(
            grid(
                rows.schema,
                self._cells(rows, marked=height is not None),
                overflow="ellipsis" if height is not None else "fold",
                key=self._feed.primary_key,
            )
        )
        if cut:
            where = "" if self._feed.primary_key else " before these"
            parts.append(Text(f"… and {cut:,} more row{'' if cut == 1 else 's'}{where}", "dim"))
        if self._removed:
            parts.append(Text(self._removed_line(), style=REMOVED))
        return Group(*parts)

    def _apply_keyed(self, change: FeedChange) -> bool:
        rows = self._feed.rows
        assert rows is not None
        self._rows = rows.slice(0, MAX_ROWS)
        if change.is_whole_table:
            return True
        changes = pa.Table.from_batches(change.batches) if change.batches else None
        if changes is None or changes.num_rows == 0:
            return False
        self._mark(changes)
        return True

    def _mark(self, changes: pa.Table) -> None:
        # By index: a column of a view may have the name `rowkind`, too.
        kinds, rows = changes.column(0), changes.remove_column(0)
        key = [name for name in self._feed.primary_key if name in rows.schema.names]
        removed = rows.filter(pc.equal(kinds, "-D"))
        texts = [table_texts(removed.column(name)) for name in key or rows.schema.names]
        self._removed = ["/".join(t or "NULL" for t in row) for row in zip(*texts, strict=True)]
        if not key:
            return
        # Only displayed keys matter, and the key's first column already excludes most others.
        possible = pc.is_in(
            rows.column(key[0]), value_set=self._rows.column(key[0]).combine_chunks()
        )
        is_displayed = pc.and_(possible, pc.is_in(kinds, pa.array(["+I", "-U"])))
        displayed = rows.filter(is_displayed)
        values = displayed.select(self._rows.schema.names)
        row_kinds = kinds.filter(is_displayed).to_pylist()
        keys = _tuples(displayed, key)
        for kind, key_values, row in zip(row_kinds, keys, _tuples(values), strict=True):
            self._before[key_values] = None if kind == "+I" else row

    def _apply_appended(self, change: FeedChange) -> bool:
        newest = self._rows if not change.is_whole_table else self._feed.schema.empty_table()
        kept, added, removed = newest, 0, 0
        for batch in change.batches:
            table = pa.Table.from_batches([batch])
            new = table.filter(pc.equal(table.column(0), "+I")).remove_column(0)
            removed += table.num_rows - new.num_rows
            added += new.num_rows
            kept = _newest(kept, new)
        if removed:
            self._removed = [f"{removed:,} rows overwritten"]
        self._rows = kept
        self._new_from = kept.num_rows if change.is_whole_table else max(0, kept.num_rows - added)
        return change.is_whole_table or bool(added or removed)

    def _visible(self, height: int | None) -> tuple[pa.Table, int]:
        count = self._change.rows if self._change else None
        total = self._rows.num_rows if count is None else count
        max_rows = self._rows.num_rows if self._feed.primary_key else PLAIN_ADDED_ROWS
        if height is not None:
            max_rows = max(1, height - FRAME_LINES - (1 if self._removed else 0))
        visible = min(max_rows, self._rows.num_rows)
        if self._feed.primary_key:
            return self._rows.slice(0, visible), total - visible
        return self._rows.slice(self._rows.num_rows - visible), total - visible

    def _cells(self, rows: pa.Table, marked: bool) -> list[list[Any]]:
        from rich.text import Text

        texts = [table_texts(rows.column(i), exact=False) for i in range(rows.num_columns)]
        styles = self._styles(rows) if marked else None
        cells = []
        for number, row in enumerate(zip(*texts, strict=True)):
            line = []
            for column, text in enumerate(row):
                cell = null() if text is None else Text(text)
                if styles is not None and styles[number][column]:
                    cell.stylize(styles[number][column])
                line.append(cell)
            cells.append(line)
        return cells

    def _styles(self, rows: pa.Table) -> list[list[str]]:
        width = rows.num_columns
        key = [name for name in self._feed.primary_key if name in rows.schema.names]
        if not key:
            first_new = rows.num_rows - (self._rows.num_rows - self._new_from)
            return [[NEW if i >= first_new else ""] * width for i in range(rows.num_rows)]
        styles = []
        for at, row in zip(_tuples(rows, key), _tuples(rows), strict=True):
            before = self._before.get(at, row)
            if before is None:
                styles.append([NEW] * width)
            else:
                same = (_same(old, new) for old, new in zip(before, row, strict=True))
                styles.append(["" if equal else CHANGED for equal in same])
        return styles

    def _title(self, live: bool) -> Any:
        from rich.text import Text

        title = Text(printable(self._feed.identifier), style="bold")
        if self._change is None:
            return title.append(" · no snapshot yet", style="not bold dim")
        rows = self._change.rows
        at = datetime.datetime.fromtimestamp(self._change.commit_time_ms / 1000, datetime.UTC)
        day = "" if live and time.time() - at.timestamp() < 43_200 else f"{at:%Y-%m-%d} "
        facts = [f"snapshot {self._change.snapshot}"]
        if rows is not None:
            facts.append(f"{rows:,} row{'' if rows == 1 else 's'}")
        facts.append(f"committed {day}{at:%H:%M:%S}.{at.microsecond // 1000:03d} UTC")
        if not self._change.is_whole_table:
            facts.append(f"shown {self._latency_ms:,.0f} ms later")
        age = time.time() - self._change.commit_time_ms / 1000
        if live and age >= 1:
            facts.append(f"{_age(age)} ago")
        return title.append(" · " + " · ".join(facts), style="not bold dim")

    def _removed_line(self) -> str:
        more = len(self._removed) - MAX_REMOVED
        text = "removed: " + ", ".join(self._removed[:MAX_REMOVED])
        return text + (f" and {more:,} more" if more > 0 else "")


def _newest(kept: pa.Table, added: pa.Table) -> pa.Table:
    if kept.schema.names != added.schema.names or added.num_rows >= MAX_ROWS:
        kept = added.slice(0, 0)
    both = pa.concat_tables([kept.cast(added.schema), added])
    return both.slice(max(0, both.num_rows - MAX_ROWS)).combine_chunks()


def _tuples(table: pa.Table, names: Sequence[str] | None = None) -> list[tuple[Any, ...]]:
    columns = [table.column(name).to_pylist() for name in names or table.schema.names]
    return list(zip(*columns, strict=True))


def _same(old: Any, new: Any) -> bool:
    return bool(old == new) or (old != old and new != new)


def _age(seconds: float) -> str:
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"
