"""Which version of each dimension a batch joins: chosen on the driver, written into its offset.

The keys of an offset that say so: `dims` (relation: snapshot, 0 before the first), `partitions`
(relation: the partitions that are joined, as their folders are named; only of lookups that do not
join all of them), `looked_up` (true where a lookup asks a server: what the batch joins is kept by
`runtime.looked_up`) and `refreshed` (relation: table, rule of its partitions, and when its snapshot
and its partitions were last looked for, epoch ms; only of lookups that do not always join the
newest).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from streamhouse.lookup.dimension import is_server
from streamhouse.lookup.partitions import Partition, key_fields, newest_snapshot
from streamhouse.lookup.refresh import RefreshRule
from streamhouse.paimon.table import Table
from streamhouse.runtime.spec import TableAddress
from streamhouse.source import Offset
from streamhouse.sql.plan import LookupJoin


@dataclass(frozen=True)
class _Pin:
    """One lookup's part of an offset."""

    snapshot: int
    partitions: tuple[Partition, ...] | None
    refreshed_ms: int
    chosen_ms: int


class Pins:
    """Chooses the versions of one query's lookups, batch by batch; driver only."""

    def __init__(self, lookups: Sequence[LookupJoin], addresses: Sequence[TableAddress]) -> None:
        self._lookups = [
            _Lookup(lookup.relation, address, RefreshRule.of(lookup))
            for lookup, address in zip(lookups, addresses, strict=True)
            if not is_server(lookup)
        ]
        self._asks = any(is_server(lookup) for lookup in lookups)

    def chosen(self, before: Offset, now_ms: int) -> dict[str, Any]:
        """The keys of the offset of a batch of `now_ms` that follows the batch of `before`."""
        dims: dict[str, int] = {}
        partitions: dict[str, list[list[str | None]]] = {}
        refreshed: dict[str, dict[str, Any]] = {}
        for lookup in self._lookups:
            pin = lookup.next(before, now_ms)
            dims[lookup.relation] = pin.snapshot
            if pin.partitions is not None:
                partitions[lookup.relation] = [list(one) for one in pin.partitions]
            if lookup.rule.keeps:
                refreshed[lookup.relation] = {
                    **lookup.same,
                    "snapshot": pin.refreshed_ms,
                    "partitions": pin.chosen_ms,
                }
        found: dict[str, Any] = {"dims": dims}
        if partitions:
            found["partitions"] = partitions
        if refreshed:
            found["refreshed"] = refreshed
        if self._asks:
            found["looked_up"] = True
        return found


def pinned_partitions(offset: Offset, relation: str) -> list[Partition] | None:
    """The partitions of a lookup that a batch joins; None for all."""
    found: Mapping[str, Sequence[Sequence[str | None]]] = offset.get("partitions", {})
    return [tuple(one) for one in found[relation]] if relation in found else None


class _Lookup:
    """One lookup of the query, and what was last seen of its table."""

    def __init__(self, relation: str, address: TableAddress, rule: RefreshRule) -> None:
        self.relation = relation
        self.rule = rule
        self._address = address
        self._seen: tuple[int, tuple[Partition, ...]] = (0, ())

    @property
    def same(self) -> dict[str, Any]:
        """What a pin must have in common with the batch before to be kept."""
        choice = self.rule.partitions
        return {"table": self._address.identifier, "rule": None if choice is None else choice.text}

    def next(self, before: Offset, now_ms: int) -> _Pin:
        rule, last = self.rule, self._last(before)
        table = self._address.open()
        if last is not None and not rule.due(now_ms, last.refreshed_ms) and _there(table, last):
            return last
        snapshot = table.latest_snapshot_id() or 0
        if rule.partitions is None:
            return _Pin(snapshot, None, now_ms, now_ms)
        if last is not None and not rule.partitions_due(now_ms, last.chosen_ms):
            return _Pin(snapshot, last.partitions, now_ms, last.chosen_ms)
        if snapshot != self._seen[0]:
            snapshot, found = newest_snapshot(table)
            self._seen = snapshot, tuple(rule.partitions.choose(found, key_fields(table)))
        return _Pin(snapshot, self._seen[1], now_ms, now_ms)

    def _last(self, before: Offset) -> _Pin | None:
        """What the batch before joined, if it was of the same table by the same choice."""
        record = before.get("refreshed", {}).get(self.relation) if before else None
        if record is None or any(record.get(key) != value for key, value in self.same.items()):
            return None
        partitions = pinned_partitions(before, self.relation)
        return _Pin(
            before["dims"][self.relation],
            None if partitions is None else tuple(partitions),
            record["snapshot"],
            record["partitions"],
        )


def _there(table: Table, pin: _Pin) -> bool:
    """Whether what is pinned can still be read; after a long stop it may have expired."""
    return pin.snapshot == 0 or table.snapshots.find(pin.snapshot) is not None
