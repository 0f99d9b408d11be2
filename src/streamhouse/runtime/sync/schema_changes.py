"""The schema changes of MySQL that a sync applies to Paimon, named as in Flink CDC."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, get_args

from streamhouse.close_matches import nearest
from streamhouse.errors import OptionError
from streamhouse.options import choice

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
