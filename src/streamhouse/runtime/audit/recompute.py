"""Recomputes the past batches of a query from its lineage, by code other than the stream's.

Reads the source again between the recorded offsets and joins it, as a batch query, with the
recorded dimension snapshots. Lookup retries run in memory, by the recorded times of the batches,
without reading the pending table.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import TypeAlias

import pyarrow as pa

from streamhouse.duckdb_connection import LastingConnection
from streamhouse.duckdb_database import open_database
from streamhouse.errors import StreamhouseError
from streamhouse.lookup import partitions
from streamhouse.paimon.schema import evolution
from streamhouse.runtime.audit.recorded_batches import Batch, RecordedBatches
from streamhouse.runtime.audit.row_differences import Row, differences, equal
from streamhouse.runtime.query_operator import ROW, numbered, only, set_times, without
from streamhouse.runtime.query_source import source_offset
from streamhouse.runtime.query_spec import QuerySpec
from streamhouse.runtime.state.lookup_journal import LookupJournal
from streamhouse.runtime.streaming.dimensions.versions import pinned_partitions
from streamhouse.runtime.streaming.watermark import watermark_before
from streamhouse.source import ROW_KIND, Offset
from streamhouse.sql.expressions.binder import quote
from streamhouse.sql.plan import LookupRetry

RetryState: TypeAlias = tuple[int, int]
"""When a row is retried (epoch ms), and how often it was; -1: it waits behind another one."""

_CLOSE = 1e-9
"""Relative: the order of addition differs."""


@dataclass(frozen=True)
class WaitingRows:
    """Source rows that wait for a lookup, each with its retry state."""

    rows: pa.Table
    states: Sequence[RetryState]


@dataclass(frozen=True)
class RecomputedStep:
    """The output of the batches after the previous step, up to `last`.

    `hits` are the source rows that were joined, `rows` the output rows made from them.
    """

    last: Batch
    hits: pa.Table
    rows: pa.Table


@dataclass
class _Settled:
    """What became of rows, by their numbers: first the waiting rows, then those of a batch.

    `retried`: the waiting rows that were joined, of which `lost` had no match and no attempts left.
    `passed`: the new rows that were joined. `waiting`: the rows that wait now.
    """

    retried: list[int] = field(default_factory=list)
    lost: list[int] = field(default_factory=list)
    passed: list[int] = field(default_factory=list)
    waiting: list[tuple[int, RetryState]] = field(default_factory=list)


class Recomputation:
    """Recomputes one query's batches in order, in this process, without Spark.

    `waiting` are the rows that wait before the first batch, and later those after the last step; so
    the batches of `recorded` may be passed in portions. None: no row waits.
    """

    def __init__(self, recorded: RecordedBatches, waiting: WaitingRows | None = None) -> None:
        self._recorded = recorded
        self.waiting = waiting
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
            looked_up = self._journaled_lookups(spec, consecutive[0])
            run = _Run(spec, self.waiting)
            for step in run.steps(consecutive, grouped, looked_up):
                self.waiting = run.waiting
                rows = evolution.with_current_columns(step.rows, target, spec.target.schema_id)
                yield replace(step, rows=rows)

    def _journaled_lookups(self, spec: QuerySpec, batch: Batch) -> dict[str, pa.Table]:
        """The rows that a batch found in tables on servers, from the lookup journal."""
        if spec.lookup_journal is None:
            return {}
        if self._journal is None or self._journal[0] != batch.fingerprint:
            self._journal = batch.fingerprint, LookupJournal(spec)
        return self._journal[1].past(batch.number)


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
    """Recomputes batches of one query that joined the same dimension versions.

    `waiting`: as in `Recomputation`.
    """

    def __init__(
        self, spec: QuerySpec, waiting: WaitingRows | None = None, pruned: bool = False
    ) -> None:
        """`pruned`: read only the columns needed, not those that rows wait with."""
        self._spec = spec
        self.waiting = waiting
        self._source = spec.source.open(
            spec.query.scan.columns if pruned or spec.retry is None else None
        )
        self._db = LastingConnection(spec.query.rows.functions, threads=2)

    def steps(
        self, batches: list[Batch], grouped: bool, looked_up: Mapping[str, pa.Table]
    ) -> Iterator[RecomputedStep]:
        self._join(batches[0].end)
        for relation, rows in looked_up.items():
            self._db.keep(relation, rows)
        try:
            query = self._spec.query
            grouped = grouped and not query.timed and not query.scan.changelog
            if grouped and self.waiting is None:
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
            rows = table.rows(columns, snapshot)
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
        misses, ordered = self._misses(src), self._spec.waits_in_order
        # Where the order does not matter, no row waits behind another one.
        new = (src if ordered else only(src, misses)).drop_columns([ROW])
        stored = self.waiting or WaitingRows(new.slice(0, 0), ())
        both = numbered(pa.concat_tables([stored.rows, new], promote_options="default"), 0)
        result = self._settled(both, stored.states, batch.now_ms)
        outputs = [
            only(both, pa.array(result.retried, pa.int64())),
            only(both, pa.array(result.passed, pa.int64())) if ordered else without(src, misses),
        ]
        if self._spec.query.reorder_key:
            whole = pa.concat_tables(outputs, promote_options="default").drop_columns([ROW])
            outputs, result.lost = [self._reordered(numbered(whole, 0))], []
        hits = [without(outputs[0], pa.array(result.lost, pa.int64())), *outputs[1:]]
        joined = pa.concat_tables(hits, promote_options="default").drop_columns([ROW])
        numbers, states = [number for number, _ in result.waiting], dict(result.waiting).values()
        rows = both.take(pa.array(numbers, pa.int64())).drop_columns([ROW])
        self.waiting = WaitingRows(rows, list(states)) if numbers else None
        return RecomputedStep(batch, joined, pa.concat_tables(map(self._rows, outputs)))

    def _settled(self, both: pa.Table, states: Sequence[RetryState], now_ms: int) -> _Settled:
        """What becomes of the rows that waited before a batch, and of its own."""
        if self._spec.retry is None:
            return _Settled()
        keys: Sequence[Hashable] = range(both.num_rows)
        retracts = [False] * both.num_rows
        if self._spec.waits_in_order:
            keys = _keys(self._spec, both)
            retracts = [kind in ("-U", "-D") for kind in both.column(ROW_KIND).to_pylist()]
        missed = set(self._misses(both).to_pylist())
        result = _settled(keys, retracts, missed, states, now_ms, self._spec.retry)
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


def _settled(
    keys: Sequence[Hashable],
    retracts: Sequence[bool],
    missed: set[int],
    states: Sequence[RetryState],
    now_ms: int,
    retry: LookupRetry,
) -> _Settled:
    """Retry the waiting rows that are due, the oldest of each key first, then take the new rows.

    Has for each row its key and whether it is a retraction; `missed` are those without a match,
    `states` are of the waiting ones. Independent of `runtime.streaming.tasks.waiting`, which the
    stream uses.
    """
    result, later = _Settled(), now_ms + retry.delay_ms
    waiting: dict[Hashable, list[tuple[int, RetryState]]] = {}
    started: set[Hashable] = set()
    for number, state in enumerate(states):
        key = keys[number]
        if key in waiting or (key not in started and state[0] > now_ms):
            waiting.setdefault(key, []).append((number, state))
            continue
        started.add(key)
        attempts = state[1] + 1
        if number in missed and (attempts == 0 or attempts < retry.max_attempts):
            waiting[key] = [(number, (later, attempts))]
        else:
            result.retried.append(number)
            result.lost += [number] if number in missed else []
    for number in range(len(states), len(keys)):
        queue = waiting.get(keys[number])
        if not queue and number not in missed:
            result.passed.append(number)
        elif not queue:
            waiting[keys[number]] = [(number, (later, 0))]
        elif retracts[number] and not retracts[queue[-1][0]]:
            queue.pop()
        else:
            queue.append((number, (later, -1)))
    result.waiting = sorted(entry for queue in waiting.values() for entry in queue)
    return result


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
    actual, expected = _rows(one, end), _rows(other, end)
    if actual.column_names != expected.column_names:
        # Only one of them has row kinds.
        return False
    real = [field.name for field in actual.schema if pa.types.is_floating(field.type)]
    with open_database() as connection:
        connection.register("actual", actual)
        connection.register("expected", expected)
        return not any(differences(connection, (), real, _are_close))


def _rows(spec: QuerySpec, end: Offset) -> pa.Table:
    rows = _Run(spec, pruned=True).at_once(end)
    planned = spec.target.planned().read_schema(row_kind=ROW_KIND in rows.column_names)
    rows = rows.rename_columns(planned.names).cast(planned)
    return evolution.with_current_columns(rows, spec.target.open(), spec.target.schema_id)


def _are_close(a: Row, b: Row) -> bool:
    return all(equal(value, b[name], _CLOSE, 0.0) for name, value in a.items())
