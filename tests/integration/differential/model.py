"""A table in plain Python: the rows that each merge engine makes of the written ones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from tests.integration.differential.layout import COLUMNS, IGNORING, Layout

Row: TypeAlias = dict[str, Any]
Event: TypeAlias = tuple[str, Row]
"""A row kind, and a row."""
Key: TypeAlias = tuple[Any, ...]

_BACK = ("-U", "-D")
_GROUP = ("v", "s")
"""The columns of the sequence group of `w`."""


class CannotTake(Exception):
    """The table has no rule for a row that takes one back: writing it must fail."""


class Model:
    """The rows of one table."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.rows: dict[Key, Row] = {}
        self._count = 0

    def key(self, row: Row) -> Key:
        return tuple(row[name] for name in self.layout.key)

    def current(self) -> list[Row]:
        return list(self.rows.values())

    def write(self, events: Iterable[Event]) -> None:
        """Rows with their kinds, as a writer of the table gives them."""
        for kind, row in self._taken(list(events)):
            self._merge(kind, row)

    def put(self, rows: Sequence[Row]) -> None:
        """Rows of an INSERT of a query: equal rows are not written again (deduplicate)."""
        if self.layout.engine != "deduplicate" or self.layout.buckets == "-1":
            self.write([("+I", row) for row in rows])
            return
        last = {self.key(row): row for row in rows}
        for key, row in last.items():
            old = self.rows.get(key)
            if old != row:
                self.change(old, row)

    def change(self, old: Row | None, new: Row | None) -> list[Event]:
        """Replace, add or remove a row, whatever the merge engine; the changes that it is."""
        changes = list[Event]()
        if old == new:
            return changes
        if old is not None:
            changes.append(("-D" if new is None else "-U", old))
            del self.rows[self.key(old)]
        if new is not None:
            changes.append(("+I" if old is None else "+U", new))
            self.rows[self.key(new)] = new
        return changes

    def _taken(self, events: list[Event]) -> list[Event]:
        """The rows without those that the table leaves out."""
        layout = self.layout
        if layout.removals == "ignore":
            return [event for event in events if event[0] not in _BACK]
        upserts = layout.engine in ("first-row", "partial-update")
        if layout.engine == "groups" and layout.producer != "input":
            upserts = True
        upserts |= layout.partition == "across"
        if not upserts:
            return events
        last = {self.key(row): n for n, (kind, row) in enumerate(events) if kind not in _BACK}
        return [
            (kind, row)
            for n, (kind, row) in enumerate(events)
            if kind != "-U" or n > last.get(self.key(row), -1)
        ]

    def _merge(self, kind: str, row: Row) -> None:
        engine, key = self.layout.engine, self.key(row)
        if engine == "append":
            self._count += 1
            self.rows[(self._count,)] = dict(row)
            return
        old = self.rows.get(key)
        if old is not None and self.layout.stays:
            row = {**row, "p": old["p"]}
        if engine == "sequenced" and old is not None and _older(row["w"], old["w"]):
            return
        made = self._merged(kind, old, row)
        if made is None:
            self.rows.pop(key, None)
        else:
            self.rows[key] = made

    def _merged(self, kind: str, old: Row | None, row: Row) -> Row | None:
        engine = self.layout.engine
        back = kind in _BACK
        if engine in ("deduplicate", "sequenced"):
            return None if back else dict(row)
        if engine == "first-row":
            if back:
                raise CannotTake(f"first-row: {kind} {row}")
            return dict(row) if old is None else old
        if engine == "aggregation":
            return self._aggregated(back, kind, old, row)
        return self._partial(back, kind, old, row)

    def _partial(self, back: bool, kind: str, old: Row | None, row: Row) -> Row | None:
        layout = self.layout
        if back and layout.removals == "remove":
            # Only a -D removes; a -U that is left here stands for a row that is gone, too.
            return None
        if back and layout.engine == "partial-update":
            raise CannotTake(f"partial-update: {kind} {row}")
        made = dict(old) if old is not None else dict.fromkeys(COLUMNS)
        grouped = ("w", *_GROUP) if layout.engine in ("groups", "group-sums") else ()
        if not back:
            plain = (name for name in COLUMNS if name not in grouped)
            made.update({name: row[name] for name in plain if row[name] is not None})
        if grouped:
            self._group(back, made, row)
        return made

    def _group(self, back: bool, made: Row, row: Row) -> None:
        """The sequence group: its columns follow the greatest version."""
        if row["w"] is None:
            return
        sums = self.layout.merged
        late = made["w"] is not None and row["w"] < made["w"]
        for name in _GROUP:
            if name in sums:
                made[name] = _folded(sums[name], back, made[name], row[name], first=False)
            elif not late:
                made[name] = None if back else row[name]
        if not late:
            made["w"] = row["w"]

    def _aggregated(self, back: bool, kind: str, old: Row | None, row: Row) -> Row | None:
        if kind == "-D" and self.layout.removals == "remove":
            return None
        made = dict(old) if old is not None else dict.fromkeys(COLUMNS)
        functions = self.layout.merged
        for name in COLUMNS:
            if name in self.layout.key:
                made[name] = row[name]
                continue
            function = functions.get(name, "last_non_null_value")
            made[name] = _folded(function, back, made[name], row[name], first=old is None)
        return made


def _older(version: Any, than: Any) -> bool:
    """Whether a version is before another; null is before all."""
    if version is None or than is None:
        return version is None and than is not None
    return bool(version < than)


def _folded(function: str, back: bool, old: Any, new: Any, first: bool) -> Any:
    """One column's value after a row, by its merge function."""
    if back:
        return _retracted(function, old, new)
    if function == "last_value":
        return new
    if function == "first_value":
        return new if first else old
    if new is None or old is None:
        return old if new is None else new
    if function == "sum":
        return old + new
    if function in ("max", "min"):
        return max(old, new) if function == "max" else min(old, new)
    if function == "listagg":
        return f"{old},{new}"
    return old if function == "first_non_null_value" else new


def _retracted(function: str, old: Any, new: Any) -> Any:
    if function in IGNORING:
        return old
    if function == "last_value":
        return None
    if new is None:
        return old
    if function == "last_non_null_value":
        return None
    return -new if old is None else old - new
