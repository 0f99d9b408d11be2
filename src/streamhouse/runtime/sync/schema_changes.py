"""The schema changes of MySQL that a sync applies to Paimon, named as in Flink CDC."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from streamhouse.close_matches import nearest
from streamhouse.durable_files import read_json, replace_json
from streamhouse.errors import OptionError
from streamhouse.options import choice

_FILE = "added-columns.json"


class AddedColumns:
    """The names by target, in a file of the sync's checkpoint; its planner writes them."""

    def __init__(self, checkpoint: Path) -> None:
        self._path = checkpoint / _FILE

    def of(self, target: str) -> frozenset[str]:
        """The columns that reloads have added to a target."""
        return frozenset(self._all().get(target, ()))

    def replace(self, target: str, names: Collection[str]) -> None:
        """Record these columns instead, before they are added."""
        found = self._all()
        if set(found.get(target, ())) != set(names):
            replace_json(self._path, {**found, target: sorted(names)})

    def _all(self) -> dict[str, list[str]]:
        return read_json(self._path) or {}


Behavior = Literal["evolve", "try_evolve", "lenient", "ignore", "exception"]
BEHAVIORS: tuple[str, ...] = get_args(Behavior)
Event = Literal[
    "add.column",
    "alter.column.type",
    "create.table",
    "drop.column",
    "drop.table",
    "rename.column",
    "truncate.table",
]
EVENTS: tuple[str, ...] = get_args(Event)
_KEEPS_ROWS = ("drop.table", "truncate.table")
_ALWAYS = "create.table"


@dataclass(frozen=True)
class SchemaChanges:
    """How a sync handles schema changes; `events` are the kinds of changes that it follows.

    docs/decisions/195-schema-changes-of-a-sync.md describes the behaviours.
    """

    behavior: str = "try_evolve"
    events: frozenset[str] = frozenset(EVENTS)

    @classmethod
    def of(
        cls, behavior: str | None, include: Iterable[str] = (), exclude: Iterable[str] = ()
    ) -> SchemaChanges:
        """From the values of the options; raises `OptionError`."""
        name = choice(
            "--schema-change-behavior",
            (behavior or "try_evolve").lower().replace("-", "_"),
            BEHAVIORS,
        )
        included = _events("--include-schema-changes", include)
        excluded = _events("--exclude-schema-changes", exclude)
        events = set(EVENTS) if included is None else {*included, _ALWAYS}
        if included is None and name == "lenient":
            events -= set(_KEEPS_ROWS)
        return cls(name, frozenset(events - (excluded or set())))

    def follows(self, event: Event) -> bool:
        """Whether a kind of change is applied to the Paimon table."""
        if self.behavior == "ignore":
            return event == _ALWAYS and _ALWAYS in self.events
        return event in self.events

    @property
    def keeps_columns_equal(self) -> bool:
        """Whether the Paimon table gets the same columns, in the same order."""
        return self.behavior in ("evolve", "try_evolve")


def _events(flag: str, names: Iterable[str]) -> set[str] | None:
    """The kinds of changes whose names contain one of these; None for no names."""
    wanted = [name.strip().lower() for name in names if name.strip()]
    found: set[str] = set()
    for name in wanted:
        matching = {event for event in EVENTS if name in event}
        if not matching:
            raise OptionError(f"{flag}: there is no '{name}'; {nearest(name, EVENTS)}")
        found |= matching
    return found if wanted else None
