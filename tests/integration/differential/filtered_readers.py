"""Queries that copy a part of a source's rows; rows leave that part and return to it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from tests.integration.differential.layout import with_options
from tests.integration.differential.model import Key, Row
from tests.integration.differential.readers import Given, Reader, copied, differences

_LEAST = 40
_NAMES = ("p", "g", "v")


class Filtered(Reader):
    """The rows with a certain amount, in a table with the same key."""

    name = "filtered"
    options: ClassVar[dict[str, str]] = {}

    def ddl(self) -> Iterator[str]:
        layout = self.case.source
        key = f", PRIMARY KEY ({', '.join(layout.key)}) NOT ENFORCED" if layout.keyed else ""
        options = {"bucket": "1", **self.options} if layout.keyed else {"bucket": "-1"}
        yield (
            f"CREATE TABLE {self.target} (k INT, p STRING, g STRING, v {layout.number}{key}) "
            f"{with_options(options)}"
        )

    def queries(self) -> Iterator[str]:
        yield (
            f"INSERT INTO {self.target} SELECT k, p, g, v FROM {self.source} WHERE v >= {_LEAST}"
        )

    def problems(self, given: Given, rows: Sequence[Row]) -> Iterator[str]:
        yield from differences(self._wanted(given), rows)

    def _wanted(self, given: Given) -> list[Row]:
        made = copied(self.case.source, given.source.events)
        names = ("k", *_NAMES)
        return [{name: row[name] for name in names} for row in made if passes(row)]


class FilteredRemoving(Filtered):
    """The same in a partial-update table, which keeps older values where an update has nulls.

    Not those of a row that has left since.
    """

    name = "filtered-removing"
    options: ClassVar[dict[str, str]] = {
        "merge-engine": "partial-update",
        "partial-update.remove-record-on-delete": "true",
    }

    def problems(self, given: Given, rows: Sequence[Row]) -> Iterator[str]:
        if not self.case.source.keyed:
            yield from super().problems(given, rows)
            return
        kept, filled = self._kept(given), []
        there = {self._key(row): row for row in rows}
        for row in self._wanted(given):
            found = there.get(self._key(row), row)
            old = kept[self._key(row)]
            names = [name for name in _NAMES if row[name] is None and found[name] in old[name]]
            filled.append({**row, **{name: found[name] for name in names}})
        yield from differences(filled, rows)

    def _kept(self, given: Given) -> dict[Key, dict[str, set[Any]]]:
        """The values that each key's row has had since it last came, or may have had.

        A reader may see a change of several commits as one.
        """
        had: dict[Key, dict[str, set[Any]]] = defaultdict(lambda: defaultdict(set))
        seen = given.source
        for state in (state for states in seen.states for state in states):
            for key in had.keys() | state.keys():
                row = state.get(key)
                if row is not None and passes(row):
                    for name in _NAMES:
                        had[key][name].add(row[name])
                elif seen.certain and key in had and self._each_commit:
                    del had[key]
        return had

    @property
    def _each_commit(self) -> bool:
        """Whether readers see the changes of each commit, not those of a compaction."""
        return not self.case.source.delays

    def _key(self, row: Row) -> Key:
        return tuple(row[name] for name in self.case.source.key)


def passes(row: Row) -> bool:
    """Whether a row is in the part."""
    return row["v"] is not None and row["v"] >= _LEAST


FILTERED: tuple[type[Reader], ...] = (Filtered, FilteredRemoving)
