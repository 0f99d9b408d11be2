"""Recomputes the past batches of a query from its lineage, by code other than the stream's.

Reads the source again between the recorded offsets and joins it, as a batch query, with the
recorded dimension snapshots. Lookup retries run in memory, by the recorded times of the batches,
without reading the pending table.
"""

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamhouse.duckdb_connection import LastingConnection
from streamhouse.errors import StreamhouseError
from streamhouse.lookup import partitions
from streamhouse.paimon.schema import evolution
from streamhouse.runtime.audit.recorded_batches import Batch, RecordedBatches
from streamhouse.runtime.audit.row_differences import equal
from streamhouse.runtime.audit.rows_in_order import KeyedRows, Result, RetryState, in_order
from streamhouse.runtime.query_operator import ROW, numbered, only, set_times, without
from streamhouse.runtime.query_source import source_offset
from streamhouse.runtime.query_spec import QuerySpec
from streamhouse.runtime.state.lookup_journal import LookupJournal
from streamhouse.runtime.streaming.dimensions.versions import pinned_partitions
from streamhouse.runtime.streaming.watermark import watermark_before
from streamhouse.source import ROW_KIND, Offset
from streamhouse.sql.expressions.binder import quote

DUE_COLUMN, ATTEMPTS_COLUMN = "_due", "_attempts"
"""Extra columns of a pending row: when it is retried (epoch ms), and the retries so far."""


_CLOSE = 1e-9
"""Relative: the order of addition differs."""


@dataclass(frozen=True)
class RecomputedStep:
    """The output of the batches after the previous step, up to `last`.

    `hits` are the source rows that were joined, `rows` the output rows made from them.
    """

    last: Batch
    hits: pa.Table
    rows: pa.Table


class Recomputation:
    """Recomputes one query's batches in order, in this process, without Spark.

    Pending rows are kept between calls of `steps`, so the batches of `recorded` may be passed in
    portions. `waiting` are the rows that are pending before the first batch: the source's columns,
    `DUE_COLUMN` and `ATTEMPTS_COLUMN`.
    """

    def __init__(self, recorded: RecordedBatches, waiting: pa.Table | None = None) -> None:
        self._recorded = recorded
        self._waiting = waiting
        self._journal: tuple[str, LookupJournal] | None = None

    def steps(self, batches: Sequence[Batch], grouped: bool = True) -> Iterator[RecomputedStep]:
        """Recompute the next batches, in order.

        With `grouped`, consecutive batches that joined the same dimension snapshots are one step,
        as long as no row is pending. A changelog is always read batch by batch: the changes of a
        longer range may be fewer, and in another order. Raises `TableError` if the lineage
        lacks a definition, `StreamhouseError` if the source is a MySQL table, which keeps no past.
        """
        for _, group in groupby(batches, key=_versions):
            consecutive = list(group)
            spec = self._recorded.spec(consecutive[0])
            target = self._recorded.target.open()
            if spec.source.connector == "mysql-cdc":
                raise StreamhouseError(
                    f"table {target.identifier} follows a MySQL table, whose history MySQL "
                    "does not keep; audit the tables that are computed from it"
                )
            for step in _Run(spec, self).steps(consecutive, grouped):
                rows = evolution.with_current_columns(step.rows, target, spec.target.schema_id)
                yield replace(step, rows=rows)

    def journaled_lookups(self, spec: QuerySpec, batch: Batch) -> dict[str, pa.Table]:
        """The rows that a batch found in tables on servers, from the lookup journal."""
        if spec.lookup_journal is None:
            return {}
        if self._journal is None or self._journal[0] != batch.fingerprint:
            self._journal = batch.fingerprint, LookupJournal(spec)
        return self._journal[1].past(batch.number)

    @property
    def waiting(self) -> pa.Table | None:
        """The rows that are pending after the last step."""
        return self._waiting


def _versions(batch: Batch) -> tuple[object, ...]:
    """What consecutive batches must share to be one step: query, dimensions and source range."""
    end = batch.end
    # Each batch with lookups on a server has its own journal entry.
    number = batch.number if end.get("looked_up") else None
    return batch.fingerprint, end["dims"], end.get("partitions"), number, _source_range(batch)


def _source_range(batch: Batch) -> tuple[object, ...]:
    """What consecutive batches must share so that their source can be read as one range."""
    start, end = source_offset(batch.start), source_offset(batch.end)
    if "split" in start or "split" in end:
        return ("split", batch.number)
    # A datagen source computes rows from the clock of each of its runs.
    return end.get("base_rows"), end.get("base_ms")


class _Run:
    """Recomputes batches of one query that joined the same dimension versions."""

    def __init__(self, spec: QuerySpec, recomputation: Recomputation, pruned: bool = False) -> None:
        """`pruned`: read only the columns needed, not those that rows wait with."""
        self._spec = spec
        self._recomputation = recomputation
        self._source = spec.source.open(
            spec.query.scan.columns if pruned or spec.retry is None else None
        )
        self._db = LastingConnection(spec.query.rows.functions, threads=2)

    def steps(self, batches: list[Batch], grouped: bool) -> Iterator[RecomputedStep]:
        self._join(batches[0].end)
        for relation, rows in self._recomputation.journaled_lookups(self._spec, batches[0]).items():
            self._db.keep(relation, rows)
        try:
            query = self._spec.query
            grouped = grouped and not query.timed and not query.scan.changelog
            if grouped and self._recomputation._waiting is None:
                step = self._run_grouped(batches)
                if step is not None:
                    yield step
                    return
            for batch in batches:
                yield self._run_single(batch)
        finally:
            self._close()

    def at_once(self, end: Offset) -> pa.Table:
        """The output of all rows up to an offset, as one batch."""
        try:
            self._join(end)
            set_times(self._db, int(end["now"]), watermark_before(end))
            src = self._read({}, end)
            return self._rows(without(src, self._misses(src)))
        finally:
            self._close()

    def _close(self) -> None:
        self._db.close()
        self._source.close()

    def _join(self, end: Offset) -> None:
        for lookup, address in self._spec.pinned:
            table, snapshot = address.open(), end["dims"][lookup.relation]
            chosen = pinned_partitions(end, lookup.relation)
            current = evolution.current_columns(table, address.schema_id, lookup.columns)
            columns = (
                current
                if chosen is None
                else list(dict.fromkeys([*current, *table.partition_keys]))
            )
            batches = table.read(columns, snapshot=snapshot) if snapshot else ()
            rows = pa.Table.from_batches(batches, schema=table.read_schema(columns))
            if chosen is not None:
                rows = rows.filter(partitions.mask(rows, table, chosen)).select(current)
            rows = rows.rename_columns(list(lookup.columns))
            planned = address.planned()
            if planned.schema_id != table.schema_id:
                schema = planned.read_schema(lookup.columns)
                rows = evolution.with_planned_types(rows, schema)
            self._db.keep(lookup.relation, rows)

    def _run_grouped(self, batches: list[Batch]) -> RecomputedStep | None:
        """All batches as one query; None if a row misses a lookup, as its batch then matters."""
        src = self._read(batches[0].start, batches[-1].end)
        if len(self._misses(src)):
            return None
        set_times(self._db, batches[-1].now_ms, watermark_before(batches[-1].end))
        return RecomputedStep(batches[-1], src.drop_columns([ROW]), self._rows(src))

    def _run_single(self, batch: Batch) -> RecomputedStep:
        """One batch: the waiting rows that are due come before its own rows, as in the stream."""
        set_times(self._db, batch.now_ms, watermark_before(batch.end))
        src = self._read(batch.start, batch.end)
        stored, before = self._recomputation._waiting, src.slice(0, 0)
        retries: list[RetryState] = []
        if stored is not None:
            before = numbered(stored.drop_columns([DUE_COLUMN, ATTEMPTS_COLUMN]), 0)
            columns = (stored.column(name).to_pylist() for name in (DUE_COLUMN, ATTEMPTS_COLUMN))
            retries = list(zip(*columns, strict=True))
        misses, ordered = self._misses(src), self._spec.waits_in_order
        # Where the order does not matter, no row waits behind another one.
        new = src if ordered else only(src, misses)
        result = self._settled(before, retries, new, batch)
        outputs = [
            only(before, pa.array(result.retried, pa.int64())),
            only(new, pa.array(result.passed, pa.int64())) if ordered else without(src, misses),
        ]
        if self._spec.query.reorder_key:
            whole = pa.concat_tables(outputs, promote_options="default").drop_columns([ROW])
            outputs, result.lost = [self._reordered(numbered(whole, 0))], []
        hits = [without(outputs[0], pa.array(result.lost, pa.int64())), *outputs[1:]]
        self._keep_waiting(before, new, result)
        return RecomputedStep(
            batch,
            pa.concat_tables(
                [rows.drop_columns([ROW]) for rows in hits], promote_options="default"
            ),
            pa.concat_tables(
                [self._db.run(self._spec.query.rows.sql, src=rows) for rows in outputs]
            ),
        )

    def _settled(
        self, before: pa.Table, retries: list[RetryState], new: pa.Table, batch: Batch
    ) -> Result:
        """What becomes of the rows that waited before a batch, and of its own."""
        retry = self._spec.retry
        if retry is None:
            return Result()
        keyed_rows = []
        for table in (before, new):
            kinds, keys = ["+I"] * table.num_rows, [object() for _ in range(table.num_rows)]
            if self._spec.waits_in_order:
                keys, kinds = _keys(self._spec, table), table.column(ROW_KIND).to_pylist()
            missed = pc.is_in(table.column(ROW), value_set=self._misses(table)).to_numpy()
            keyed_rows.append(KeyedRows(keys, kinds, set(np.flatnonzero(missed).tolist())))
        result = in_order(keyed_rows[0], retries, keyed_rows[1], batch.now_ms, retry)
        if all(lookup.left for lookup in self._spec.query.lookups):
            result.lost = []
        return result

    def _reordered(self, src: pa.Table) -> pa.Table:
        """The rows of a batch in the order in which the stream writes them."""
        keys = ", ".join(quote(name) for name in self._spec.query.reorder_key)
        ordered = self._db.run(
            f"SELECT * FROM src ORDER BY {ROW_KIND} IN ('+I', '+U') AND {ROW} = MAX({ROW}) OVER "
            f"(PARTITION BY {keys}), {ROW}",
            src=src,
        )
        return numbered(ordered.drop_columns([ROW]).cast(src.drop_columns([ROW]).schema), 0)

    def _keep_waiting(self, before: pa.Table, new: pa.Table, result: Result) -> None:
        both = pa.concat_tables([before, new], promote_options="default").drop_columns([ROW])
        waiting = both.take(pa.array([place for place, _ in result.waiting], pa.int64()))
        for number, name in enumerate((DUE_COLUMN, ATTEMPTS_COLUMN)):
            kind = pa.int64() if number == 0 else pa.int32()
            values = pa.array([mark[number] for _, mark in result.waiting], kind)
            waiting = waiting.append_column(name, values)
        self._recomputation._waiting = waiting if waiting.num_rows else None

    def _rows(self, src: pa.Table) -> pa.Table:
        """The output of source rows."""
        return self._db.run(self._spec.query.rows.sql, src=src)

    def _misses(self, src: pa.Table) -> pa.Array:
        sql = self._spec.query.misses_sql
        if sql is None or src.num_rows == 0:
            return pa.array([], pa.int64())
        return self._db.run(sql, src=src).column(0).combine_chunks()

    def _read(self, start: Offset, end: Offset) -> pa.Table:
        before = source_offset(start) if start else self._source.initial_offset()
        after = source_offset(end)
        schema = self._source.schema
        if self._spec.query.scan.changelog and ROW_KIND not in schema.names:
            schema = schema.append(pa.field(ROW_KIND, pa.string()))
        batches = [
            batch
            for partition in self._source.partitions(before, after)
            for batch in self._source.read(partition)
        ]
        table = pa.Table.from_batches(batches) if batches else schema.empty_table()
        return numbered(table, 0)


def _keys(spec: QuerySpec, rows: pa.Table) -> list[Hashable]:
    """The key of each source row; all its columns, if the source has no primary key."""
    key = spec.query.source.primary_key
    names = key or [name for name in rows.column_names if name not in (ROW, ROW_KIND)]
    return [tuple(map(repr, row.values())) for row in rows.select(list(names)).to_pylist()]


def same_results(one: QuerySpec, other: QuerySpec, end: Offset) -> bool:
    """Whether two plans of a query give the same rows, in any order, up to an offset.

    Reads the source as it was at that offset, and the lookup tables as the batch joined them, with
    the types of each plan. Raises `StreamhouseError` if they are gone, or a column is.
    """
    return _same(_rows(one, end), _rows(other, end))


def _rows(spec: QuerySpec, end: Offset) -> pa.Table:
    recomputation = Recomputation(RecordedBatches(spec.target, (), {}))
    rows = _Run(spec, recomputation, pruned=True).at_once(end)
    if spec.sink is not None:
        return rows
    planned = spec.target.planned().read_schema(row_kind=ROW_KIND in rows.column_names)
    rows = rows.rename_columns(planned.names).cast(planned)
    return evolution.with_current_columns(rows, spec.target.open(), spec.target.schema_id)


def _same(a: pa.Table, b: pa.Table) -> bool:
    if a.num_rows != b.num_rows or a.num_columns != b.num_columns:
        return False
    if a.equals(b):
        return True
    rows = [sorted(map(tuple, map(dict.values, t.to_pylist())), key=_order) for t in (a, b)]
    return all(
        type(value) is type(other) and equal(value, other, _CLOSE, 0.0)
        for pair in zip(*rows, strict=True)
        for value, other in zip(*pair, strict=True)
    )


def _order(row: tuple[Any, ...]) -> str:
    return repr([f"{value:.6g}" if isinstance(value, float) else value for value in row])
