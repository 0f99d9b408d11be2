"""A dimension that is a MySQL table itself: keys are asked of the server, batch by batch.

A server has no versions that could be pinned. So within a batch each key is asked for once, what
was found is handed out to be kept (`taken`), and a batch that runs again is given it (`begin`).
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from streamhouse.connectors.jdbc.options import JdbcOptions, check_hint, parse
from streamhouse.connectors.jdbc.table import Key, KeyedTable
from streamhouse.errors import OptionError
from streamhouse.lookup.dimension import DimensionSpec, Taken
from streamhouse.lookup.partitions import Partition
from streamhouse.sql.plan import LookupJoin

Rows = tuple[tuple[Any, ...], ...]
"""The rows of one key, values in the order of the lookup's columns."""


def options_of(lookup: LookupJoin) -> JdbcOptions:
    """The options of the lookup's table and of a hint over it; raises `OptionError`."""
    check_hint(lookup.options, f"lookup of {lookup.table.name[-1]}")
    own = {key: value for key, value in lookup.table.options.items() if key != "connector"}
    return parse({**own, **lookup.options})


def open_table(lookup: LookupJoin) -> tuple[KeyedTable, tuple[str, ...]]:
    """The table with the lookup's columns, and those by which keys are asked for.

    Connects. Raises as `KeyedTable`, and `OptionError` where the server could not find any key.
    """
    declared = {column.name: column for column in lookup.table.columns}
    table = KeyedTable(options_of(lookup).server, [declared[name] for name in lookup.columns])
    names = table.comparable(lookup.key_columns)
    if not names:
        table.close()
        raise OptionError(
            f"lookup of {lookup.table.name[-1]}: the join compares {', '.join(lookup.keys)} in "
            "another type than MySQL's column has; declare it with a type like MySQL's, and CAST "
            "the other side to that"
        )
    return table, names


class Cache:
    """Rows by key from batch to batch, the ones longest not asked for going first."""

    def __init__(self, options: JdbcOptions) -> None:
        self._options = options
        self._held: OrderedDict[Key, tuple[Rows, float, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._held)

    def get(self, key: Key, now: float) -> Rows | None:
        """What was found for a key; None if it must be asked for. `now` is in seconds."""
        held = self._held.pop(key, None)
        if held is None:
            return None
        rows, written, asked = held
        options = self._options
        if options.after_write_ms is not None and now - written >= options.after_write_ms / 1000:
            return None
        if options.after_access_ms is not None and now - asked >= options.after_access_ms / 1000:
            return None
        self._held[key] = rows, written, now
        return rows

    def put(self, key: Key, rows: Rows, now: float) -> None:
        """Keep what was found now."""
        if not self._options.cache or not (rows or self._options.cache_missing):
            return
        self._held[key] = rows, now, now
        if len(self._held) > self._options.max_keys:
            self._held.popitem(last=False)


class ServerDimension:
    """A MySQL table that is asked for the keys of each chunk; see the module."""

    keyed = True

    def __init__(self, spec: DimensionSpec) -> None:
        self._lookup = lookup = spec.lookup
        self._options = options_of(lookup)
        self._cache = Cache(self._options)
        self._waits = lookup.retry is not None
        self._table: KeyedTable | None = None
        self._key: tuple[str, ...] = ()
        self._answers: dict[Key, Rows] = {}
        self._recorded: pa.Table | None = None

    def at(self, snapshot: int | None, chosen: Sequence[Partition] | None = None) -> None:
        """Nothing: there are no versions."""

    def begin(self, recorded: pa.Table | None = None) -> None:
        """A batch begins; `recorded` is what it found when it ran before."""
        self._answers.clear()
        self._recorded = recorded

    def rows(self, keys: pa.Table | None) -> pa.Table:
        if self._recorded is not None:
            return self._recorded
        assert keys is not None
        table = self._opened()
        types = pa.schema([table.schema.field(name) for name in self._key])
        # DuckDB has microseconds where the table may have less.
        given = keys.select(list(self._key)).cast(types, safe=False)
        wanted = list(dict.fromkeys(_tuples(given)))
        self._query_server([key for key in wanted if key not in self._answers], table)
        return _table((row for key in wanted for row in self._answers[key]), table.schema)

    def taken(self) -> Taken:
        """What the batch has looked up so far."""
        found = (row for rows in self._answers.values() for row in rows)
        return Taken(len(self._answers), _table(found, self._opened().schema))

    def close(self) -> None:
        table, self._table = self._table, None
        if table is not None:
            table.close()

    def _opened(self) -> KeyedTable:
        if self._table is None:
            self._table, self._key = open_table(self._lookup)
        return self._table

    def _query_server(self, keys: Sequence[Key], table: KeyedTable) -> None:
        now, rest = time.monotonic(), []
        for key in keys:
            held = self._cache.get(key, now)
            if held is None or (self._waits and not held):
                # A row that waits for its partner would wait for the cache.
                rest.append(key)
            else:
                self._answers[key] = held
        if not rest:
            return
        found = table.rows(self._key, rest)
        rows: dict[Key, list[tuple[Any, ...]]] = {key: [] for key in rest}
        for key, row in zip(_tuples(found.select(list(self._key))), _tuples(found), strict=True):
            # The server may hold other keys for equal.
            if key in rows:
                rows[key].append(row)
        for key in rest:
            self._answers[key] = tuple(rows[key])
            self._cache.put(key, self._answers[key], now)


def _tuples(table: pa.Table) -> Iterable[tuple[Any, ...]]:
    return zip(*(column.to_pylist() for column in table.columns), strict=True)


def _table(rows: Iterable[tuple[Any, ...]], schema: pa.Schema) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    arrays = [pa.array(values, one.type) for values, one in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)
