"""A dimension that is a MySQL table itself: each batch looks up its keys on the server.

A server has no snapshots that could be pinned. So a batch looks up each key once, the caller stores
what it found (`server_rows`), and a batch that runs again gets this instead (`begin`).
"""

import time
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from streamhouse.connectors.jdbc.options import JdbcOptions, check_hint, parse
from streamhouse.connectors.jdbc.reader import JdbcReader, Key
from streamhouse.connectors.registry import effective_options
from streamhouse.errors import OptionError
from streamhouse.lookup.dimension import CAST_OTHER, DimensionSpec, ServerRows
from streamhouse.sql.plan import LookupJoin

Rows = tuple[tuple[Any, ...], ...]
"""The rows of one key, values in the order of the lookup's columns."""


def options_of(lookup: LookupJoin) -> JdbcOptions:
    """The options of the lookup's table, overridden by a hint; raises `OptionError`."""
    check_hint(lookup.options, f"lookup of {lookup.table.name[-1]}")
    return parse(effective_options(lookup.table, lookup.options))


def with_secrets(lookup: LookupJoin) -> LookupJoin:
    """The lookup with the secrets that its options refer to, for tasks on other machines."""
    options = {**lookup.table.options, **effective_options(lookup.table)}
    return replace(lookup, table=replace(lookup.table, options=options))


def open_table(lookup: LookupJoin) -> tuple[JdbcReader, tuple[str, ...]]:
    """The table with the lookup's columns, and the names of those by which keys are looked up.

    Connects to the server. Raises as `JdbcReader`, and `OptionError` if the server cannot compare
    any of the key columns.
    """
    declared = {column.name: column for column in lookup.table.columns}
    table = JdbcReader(options_of(lookup).server, [declared[name] for name in lookup.columns])
    names = table.comparable(lookup.key_columns)
    if not names:
        table.close()
        raise OptionError(
            f"lookup of {lookup.table.name[-1]}: the join compares {', '.join(lookup.keys)} as "
            "another type than MySQL's column has; declare the column with a type like MySQL's, "
            f"and {CAST_OTHER}"
        )
    return table, names


class Cache:
    """Caches rows by key from batch to batch; evicts the least recently used first."""

    def __init__(self, options: JdbcOptions) -> None:
        self._options = options
        self._entries: OrderedDict[Key, tuple[Rows, float, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: Key, now: float) -> Rows | None:
        """The rows of a key; None if it must be looked up. `now` is in seconds."""
        entry = self._entries.pop(key, None)
        if entry is None:
            return None
        rows, written, accessed = entry
        options = self._options
        if options.after_write_ms is not None and now - written >= options.after_write_ms / 1000:
            return None
        if options.after_access_ms is not None and now - accessed >= options.after_access_ms / 1000:
            return None
        self._entries[key] = rows, written, now
        return rows

    def put(self, key: Key, rows: Rows, now: float) -> None:
        """Store the rows of a key, if the options allow it."""
        if not self._options.cache or not (rows or self._options.cache_missing):
            return
        self._entries[key] = rows, now, now
        if len(self._entries) > self._options.max_keys:
            self._entries.popitem(last=False)


class ServerDimension:
    """A MySQL table on which the keys of each chunk are looked up; see the module. Executors."""

    keyed = True

    def __init__(self, spec: DimensionSpec) -> None:
        self._lookup = lookup = spec.lookup
        self._options = options_of(lookup)
        self._cache = Cache(self._options)
        self._waits = lookup.retry is not None
        self._table: JdbcReader | None = None
        self._key: tuple[str, ...] = ()
        self._answers: dict[Key, Rows] = {}
        self._recorded: pa.Table | None = None

    def begin(self, recorded: pa.Table | None = None) -> None:
        """Start a batch; `recorded` is what it found when it ran before, None in its first run."""
        self._answers.clear()
        self._recorded = recorded

    def rows(self, keys: pa.Table | None) -> pa.Table:
        """The rows that have one of these keys, maybe with others; as `TableDimension.rows`."""
        if self._recorded is not None:
            return self._recorded
        assert keys is not None
        table = self._opened()
        types = pa.schema([table.schema.field(name) for name in self._key])
        # DuckDB's timestamps have microseconds, the table's may have fewer digits.
        typed_keys = keys.select(list(self._key)).cast(types, safe=False)
        requested = list(dict.fromkeys(_tuples(typed_keys)))
        self._query_server([key for key in requested if key not in self._answers], table)
        return _table((row for key in requested for row in self._answers[key]), table.schema)

    def server_rows(self) -> ServerRows:
        """What the batch has looked up so far."""
        all_rows = (row for rows in self._answers.values() for row in rows)
        return ServerRows(len(self._answers), _table(all_rows, self._opened().schema))

    def close(self) -> None:
        """Close the connection."""
        table, self._table = self._table, None
        if table is not None:
            table.close()

    def _opened(self) -> JdbcReader:
        if self._table is None:
            self._table, self._key = open_table(self._lookup)
        return self._table

    def _query_server(self, keys: Sequence[Key], table: JdbcReader) -> None:
        now, uncached = time.monotonic(), []
        for key in keys:
            cached = self._cache.get(key, now)
            if cached is None or (self._waits and not cached):
                # A row that is retried until its key exists must not be answered by the cache.
                uncached.append(key)
            else:
                self._answers[key] = cached
        if not uncached:
            return
        result = table.rows(self._key, uncached)
        rows: dict[Key, list[tuple[Any, ...]]] = {key: [] for key in uncached}
        for key, row in zip(_tuples(result.select(list(self._key))), _tuples(result), strict=True):
            # The server may consider other keys equal, such as those that differ in case.
            if key in rows:
                rows[key].append(row)
        for key in uncached:
            self._answers[key] = tuple(rows[key])
            self._cache.put(key, self._answers[key], now)


def _tuples(table: pa.Table) -> Iterable[tuple[Any, ...]]:
    return zip(*(column.to_pylist() for column in table.columns), strict=True)


def _table(rows: Iterable[tuple[Any, ...]], schema: pa.Schema) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    arrays = [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)
