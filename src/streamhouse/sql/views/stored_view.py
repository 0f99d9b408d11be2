"""How a view is stored: as a table whose options have its query, under Paimon's own names."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self

from streamhouse.sql.expressions.zones import UTC
from streamhouse.sql.plan import Capabilities, Column, TableInfo
from streamhouse.sql.schema_changes import ResetTableOption, SetTableOption

HIDDEN_KEY = "_view_key"
"""The key column of a view whose result has no key without nulls; readers do not see it."""
QUERY = "materialized-table.definition-query"
FRESHNESS = "materialized-table.interval-freshness"
_UNIT = "materialized-table.interval-freshness.time-unit"
_MODE = "materialized-table.refresh-mode"
STATUS = "materialized-table.refresh-status"
_PREFIX = "materialized-table."
_KIND = f"{_PREFIX}refresh-handler-description"
APPENDED = _KIND
"""The option of a table, which is no view, with the SELECT whose result is appended to it."""
_ZONE = "in the time zone "
NEXT = "__next"
"""How the name of the table ends in which the next query of a view is computed."""
_OTHER_ROWS = ("sequence.field", "rowkind.field", "ignore-delete", "ignore-update-before")
"""Options with which a table has other rows than those that were written last."""
_READ_ONLY = Capabilities(changelog=True, sink=False, merges=False)


@dataclass(frozen=True)
class StoredView:
    """A view's definition: its query with full names of all tables, and how it is refreshed.

    `freshness_s` is the least number of seconds between two refreshes. A `full` view is refreshed
    by each run once; a `suspended` one is not refreshed. `zone`: the time zone of its times.
    """

    query: str
    freshness_s: float = 0.0
    full: bool = False
    suspended: bool = False
    zone: str = UTC

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Self | None:
        """The view that a table's options define; None for an ordinary table."""
        if QUERY not in options:
            return None
        _, _, zone = options.get(_KIND, "").partition(_ZONE)
        return cls(
            options[QUERY],
            float(options.get(FRESHNESS, "0")),
            options.get(_MODE) == "FULL",
            options.get(STATUS) == "SUSPENDED",
            zone or UTC,
        )

    def same_query(self, other: Self) -> bool:
        """Whether both compute the same, however they are refreshed."""
        return (self.query, self.zone) == (other.query, other.zone)

    @property
    def options(self) -> dict[str, str]:
        """The options that store the view."""
        return {
            QUERY: self.query,
            FRESHNESS: f"{self.freshness_s:.15g}",
            _UNIT: "SECOND",
            _MODE: "FULL" if self.full else "CONTINUOUS",
            STATUS: "SUSPENDED" if self.suspended else "ACTIVATED",
            **({_KIND: _ZONE + self.zone} if self.zone != UTC else {}),
        }

    def option_changes(self, other: Self) -> list[SetTableOption | ResetTableOption]:
        """The changes of the options that turn this view into another one."""
        before, after = self.options, other.options
        changed = [SetTableOption(k, v) for k, v in after.items() if before.get(k) != v]
        return [*changed, *(ResetTableOption(key) for key in before if key not in after)]


def keeps_result(table: TableInfo) -> bool:
    """Whether a table has the rows of a result if these are written as upserts and deletes."""
    options = table.options
    return (
        table.connector == "paimon"
        and bool(table.primary_key)
        and options.get("merge-engine", "deduplicate") == "deduplicate"
        and options.get("deletion-vectors.enabled", "false") != "true"
        and set(table.partitioned_by) <= set(table.primary_key)
        and not any(key in options for key in _OTHER_ROWS)
    )


def as_ordinary_table(info: TableInfo) -> TableInfo:
    """A view's table without what makes it a view; other tables as given."""
    if not is_view(info):
        return info
    seen = as_readers_see_it(info)
    own = ("changelog-producer",) if seen.primary_key else ("changelog-producer", "bucket")
    options = {k: v for k, v in info.options.items() if k not in own and not k.startswith(_PREFIX)}
    return replace(seen, options=options, capabilities=info.capabilities)


def is_view(info: TableInfo) -> bool:
    """Whether a table is that of a view."""
    return QUERY in info.options


def shown_columns(columns: tuple[Column, ...], options: Mapping[str, str]) -> tuple[Column, ...]:
    """The columns of a table that readers see: all but the hidden key of a view."""
    if QUERY not in options:
        return columns
    return tuple(column for column in columns if column.name != HIDDEN_KEY)


def as_readers_see_it(info: TableInfo) -> TableInfo:
    """A view's table with its shown columns, which no statement can write; other tables as given.

    Its stream has updates and deletes, whether or not readers see its key.
    """
    if not is_view(info):
        return info
    hidden = info.primary_key == (HIDDEN_KEY,)
    return replace(
        info,
        columns=shown_columns(info.columns, info.options),
        primary_key=() if hidden else info.primary_key,
        options={k: v for k, v in info.options.items() if not k.startswith(_PREFIX) or k == QUERY},
        capabilities=_READ_ONLY,
    )
