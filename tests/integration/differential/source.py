"""One source table of a case, filled change by change, with its plain model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tests.integration.differential.core import ADDED, JavaCore
from tests.integration.differential.history import Change
from tests.integration.differential.layout import COLUMNS, Layout
from tests.integration.differential.model import Event, Key, Model, Row

from streamhouse import execute
from streamhouse.paimon.catalog.warehouse import Warehouse

_ALL = ", ".join(COLUMNS)


class Source:
    """A table that is filled in one of the ways of `case.FEEDS`; its upstream is `<name>_up`."""

    def __init__(self, core: JavaCore, table: str, layout: Layout, feed: str) -> None:
        self.table, self.layout, self.feed = table, layout, feed
        self.model = Model(layout)
        self.states: list[list[dict[Key, Row]]] = []
        """After each round: the states of its rows, one after each change that readers may see."""
        self._core, self._warehouse = core, core.warehouse
        self._upstream = Model(Layout(partition=layout.partition))
        self._commits = 0
        self._followed = False

    @property
    def up(self) -> str:
        return f"{self.table}_up"

    @property
    def streams(self) -> bool:
        return self.feed in ("stream", "keyed-stream", "stopped", "lives")

    def ddl(self) -> Iterator[str]:
        """The CREATE TABLEs: of the table, and of what it is filled from."""
        yield self.layout.ddl(self.table)
        if self.feed == "keyed-stream":
            yield (
                Layout(
                    partition="key" if self.layout.partition == "key" else "none",
                    number=self.layout.number,
                )
                .ddl(self.up)
                .replace(" PARTITIONED BY (p)", "")
            )
        elif self.streams:
            yield Layout("append", buckets="-1", number=self.layout.number).ddl(self.up)
        elif self.feed == "select":
            plain = Layout("append", buckets="-1", number=self.layout.number).ddl(self.up)
            yield plain.replace("(k INT", "(c INT, k INT")

    def query(self) -> str:
        """The continuous INSERT that fills the table from its upstream."""
        return f"INSERT INTO {self.table} ({_ALL}) SELECT {_ALL} FROM {self.up}"

    def fill(self, changes: Sequence[Change]) -> None:
        """A round: write the changes, one commit each, into the table or its upstream."""
        self.states.append([])
        for change in changes:
            self._fill(change)
            self._add_state()

    def _add_state(self) -> None:
        self.states[-1].append({key: dict(row) for key, row in self.model.rows.items()})

    def _fill(self, change: Change) -> None:
        if change.action == "insert":
            self._insert(change.events)
        elif change.action == "merge":
            self._merge(change)
        elif change.action == "update":
            self._update(change)
        else:
            self._delete(change.keys)

    def _insert(self, events: Sequence[Event]) -> None:
        self._commits += 1
        if self.feed in ("java", "java-write-only"):
            self._core.write(self.table, events, compacts=self.feed == "java")
            self.model.write(events)
        elif self.feed == "keyed-stream":
            self._change_upstream(events)
        elif self.streams:
            self._run(f"INSERT INTO {self.up} VALUES {_values(events)}")
            self.model.write(events)
        elif self.feed == "select":
            number = self._commits
            rows = ", ".join(f"({number}, {_texts(row)})" for _, row in events)
            self._run(f"INSERT INTO {self.up} VALUES {rows}")
            self._run(
                f"INSERT INTO {self.table} ({_ALL}) SELECT {_ALL} FROM {self.up} WHERE c = {number}"
            )
            self.model.put([row for _, row in events])
        else:
            self._run(f"INSERT INTO {self.table} ({_ALL}) VALUES {_values(events)}")
            self.model.write(events)

    def _change_upstream(self, events: Sequence[Event]) -> None:
        """Rows and removals of the upstream, one commit each, whose changes reach the table."""
        for kind, row in events:
            old = self._upstream.rows.get(self._upstream.key(row))
            if kind == "-D":
                self._run(f"DELETE FROM {self.up} WHERE {self._where([self.model.key(row)])}")
                changes = self._upstream.change(old, None)
            else:
                self._run(f"INSERT INTO {self.up} VALUES ({_texts(row)})")
                changes = self._upstream.change(old, row)
            if self._followed:
                self.model.write(changes)
                self._add_state()

    def follow(self) -> None:
        """The query that fills the table runs now: it begins with the rows of its upstream."""
        if self.feed == "keyed-stream" and not self._followed:
            self._followed = True
            self.model.write([("+I", row) for row in self._upstream.rows.values()])
            self._add_state()

    def _merge(self, change: Change) -> None:
        rows = ", ".join(
            f"({_texts(row)}, {self.model.key(row) in change.keys})" for _, row in change.events
        )
        on = " AND ".join(f"t.{name} = n.{name}" for name in self.layout.key)
        there = any(self.model.key(row) in self.model.rows for _, row in change.events)
        matched = "WHEN MATCHED THEN UPDATE SET v = n.v, s = n.s " if there else ""
        if change.keys:
            matched = f"WHEN MATCHED AND n.gone THEN DELETE {matched}"
        self._run(
            f"MERGE INTO {self.table} AS t USING (SELECT * FROM (VALUES {rows}) "
            f"AS x ({_ALL}, gone)) AS n ON {on} {matched}"
            f"WHEN NOT MATCHED THEN INSERT ({_ALL}) VALUES ({', '.join(f'n.{c}' for c in COLUMNS)})"
        )
        for _, row in change.events:
            old = self.model.rows.get(self.model.key(row)) if self.layout.keyed else None
            if old is None:
                self.model.write([("+I", row)])
            elif self.model.key(row) in change.keys:
                self.model.change(old, None)
            else:
                self.model.change(old, {**old, "v": row["v"], "s": row["s"]})

    def _update(self, change: Change) -> None:
        ((_, row),) = change.events
        self._run(
            f"UPDATE {self.table} SET v = {row['v']}, s = '{row['s']}' "
            f"WHERE {self._where(change.keys)}"
        )
        for key in change.keys:
            old = self.model.rows.get(key)
            if old is not None:
                self.model.change(old, {**old, "v": row["v"], "s": row["s"]})

    def _delete(self, keys: Sequence[Key]) -> None:
        self._run(f"DELETE FROM {self.table} WHERE {self._where(keys)}")
        for key in keys:
            if key in self.model.rows:
                self.model.change(self.model.rows[key], None)

    def _where(self, keys: Sequence[Key]) -> str:
        names = self.layout.key
        each = (
            " AND ".join(f"{n} = {_text(value)}" for n, value in zip(names, key, strict=True))
            for key in keys
        )
        return " OR ".join(f"({one})" for one in each)

    def _run(self, sql: str) -> None:
        execute(self._warehouse, sql, self._core.sidecar)


def _values(events: Sequence[Event]) -> str:
    return ", ".join(f"({_texts(row)})" for _, row in events)


def _texts(row: Row) -> str:
    return ", ".join(_text(row[name]) for name in COLUMNS)


def _text(value: Any) -> str:
    if value is None:
        return "NULL"
    return f"'{value}'" if isinstance(value, str) else str(value)


def rows_of(warehouse: Warehouse, table: str) -> list[Row]:
    """All rows of a table, as a SELECT sees them."""
    opened = warehouse.table(table)
    if opened.latest_snapshot_id() is None:
        return []
    columns = [column.name for column in opened.columns if column.name != ADDED]
    return [row for batch in opened.read(columns) for row in batch.to_pylist()]
