"""Incremental execution of a tree: changes of the inputs to changes of the result, and kept rows.

Each operator gets the changes of its inputs, and the rows that its delta form looks up from
arrangements. Operators whose inputs do not change are skipped. New rows of arrangements are written
as new segments, so the kept rows from before stay until the refresh is done.
"""

import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Self

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamhouse.duckdb_engine import THREADS
from streamhouse.operators.operator import (
    RESULT,
    WEIGHT,
    Change,
    Operator,
    before,
    same_keys,
    walk,
    whole_sql,
)  # fmt: skip
from streamhouse.operators.operator import keys as keys_of
from streamhouse.operators.scan import Scan
from streamhouse.operators.trees.arrangement import Arrangement, hash_of, net
from streamhouse.operators.trees.compiled_tree import CompiledTree, Source
from streamhouse.sql.expressions.binder import quote
from streamhouse.state.manifest import Merge, Segments
from streamhouse.state.segment import (
    COUNT,
    HASH,
    AskedPart,
    Segment,
    SegmentFile,
    StateError,
    distinct,
    mergeable,
    parts,
    written,
)
from streamhouse.state.store import StateStore

PART_ROWS = 250_000
"""More rows of a table that change at once are applied in parts, so that memory is bounded."""
MERGED_ROWS, MOST_FILES = 100_000, 64
"""More rows are merged beside the batches, unless that leaves more files of an arrangement."""
_BATCH_ROWS = 65_536
_SORTED_ROWS = 1 << 18
"""The rows of a larger change are sorted by DuckDB, which may spill them."""
FIRST_ROWS = 64
"""How many rows of a key are read first from each segment, besides those that matter, where only
leading rows matter."""
WHOLE_ROWS = 20_000
"""So few rows are all read as fast."""
_DEEPER = 16
"""How many times as many rows are read next if the first ones did not suffice."""
_FEW_HASHES = 2_000
"""Fewer rows are found by one thread as fast."""
_NEGATIVE = "kept rows have negative counts"


@dataclass(frozen=True)
class SourceChange:
    """The rows that a table got, with the columns of `Source.scan`, and, if it has a primary key,
    the keys whose rows may have changed; rows of other keys are left out."""

    rows: pa.Table
    keys: pa.Table | None = None

    @property
    def size(self) -> int:
        """How many keys, or rows without keys, may have changed."""
        return int((self.rows if self.keys is None else self.keys).num_rows)

    def split(self) -> list[Self]:
        """Changes that follow one another, each of at most `PART_ROWS` keys, or rows without."""
        starts = range(0, max(1, self.size), PART_ROWS)
        if self.keys is None:
            return [replace(self, rows=self.rows.slice(start, PART_ROWS)) for start in starts]
        return [replace(self, keys=self.keys.slice(start, PART_ROWS)) for start in starts]


def in_parts(changes: Mapping[Source, SourceChange]) -> list[dict[Source, SourceChange]]:
    """The same changes as those of refreshes that follow one another: at least one."""
    split = {source: each.split() for source, each in changes.items()}
    count = max([1, *map(len, split.values())])
    return [
        {source: parts[number] for source, parts in split.items() if number < len(parts)}
        for number in range(count)
    ]


class IncrementalRefresh:
    """One refresh of a tree in a DuckDB connection, from kept rows, which `segments` name."""

    def __init__(
        self,
        tree: CompiledTree,
        connection: duckdb.DuckDBPyConnection,
        store: StateStore,
        segments: Mapping[str, Segments],
    ) -> None:
        self._tree, self._db, self._store = tree, connection, store
        self.segments: dict[str, Segments] = dict(segments)
        """The kept rows after the refresh."""
        self.merges: list[tuple[Segments, Arrangement]] = []
        """Segments that are to be merged beside the batches."""
        self._changes: dict[str, str] = {}
        """The relations of changes that may have rows, by their names in the tree."""
        self._stored: dict[str, int] = {}
        """The number of rows of the changes that are tables, by their names."""
        self._threads = ThreadPoolExecutor(THREADS)

    def apply(self, changes: Mapping[Source, SourceChange]) -> str:
        """Compute the change of the result; returns its relation, with `WEIGHT` last.

        `segments` stay as they are until `keep` is called.
        """
        with self._threads:
            self._compute(changes)
        return self._needed(self._tree.root)

    def keep(self) -> None:
        """Write the rows of all changes as segments, and add these to the kept rows."""
        added: list[tuple[str, Callable[[], SegmentFile]]] = []
        with ThreadPoolExecutor(THREADS) as threads:
            for name, rows in self._stored.items():
                for kept in self._tree.keeping.get(name, ()):
                    if len(added) >= THREADS:  # So many changes at a time are in memory.
                        added[-THREADS][1]()
                    added.append((kept.name, self._change_segment(kept, name, rows, threads)))
        for name, segment in added:
            self._add(name, self._tree.arrangements[name], segment())

    def _compute(self, changes: Mapping[Source, SourceChange]) -> None:
        """Make the relations of all changes."""
        empty = {self._source(n, each, changes) for n, each in enumerate(self._tree.sources)}
        relations = {
            relation: f"_s{n}"
            for n, each in enumerate(self._tree.sources)
            for relation in each.relations
        }
        for number, operator in enumerate(self._tree.operators):
            if isinstance(operator, Scan):
                source = relations[operator.relation]
                if source not in empty:
                    self._made(number, operator, operator.delta([Change(source)]))
            else:
                self._operator(number, operator)

    def _source(self, number: int, source: Source, changes: Mapping[Source, SourceChange]) -> str:
        """Create the table of the change of a source; its name if it is empty."""
        name, change, scan = f"_s{number}", changes.get(source), source.scan
        if change is None:
            return name
        columns = ", ".join(map(quote, scan.columns))
        self._db.register(f"_in{number}", change.rows)
        new = f"SELECT {columns}, 1 AS {WEIGHT} FROM _in{number}"
        if source.arrangement is None:
            return "" if self._create(name, new) else name
        assert change.keys is not None
        by, kept = source.arrangement.by, source.arrangement
        self._db.register(f"_keys{number}", change.keys)
        keys, old = f"SELECT {keys_of(by)} FROM _keys{number} AS {kept.alias}", f"_p{number}"
        if self._fetched(old, kept, keys, summed=False):
            new += f" UNION ALL SELECT {columns}, -{WEIGHT} FROM ({kept.weighted(f'{old}_raw')})"
        same = " AND ".join(f"{sql} = _t._k{n}" for n, sql in enumerate(by))
        both = f"SELECT * FROM ({new}) AS {kept.alias} WHERE EXISTS "
        both += f"(SELECT 1 FROM ({keys}) AS _t WHERE {same})"
        return "" if self._create(name, net(scan, f"({both})")) else name

    def _operator(self, number: int, operator: Operator) -> None:
        """Create the table of the change of an operator's result, unless it is empty."""
        names = [self._tree.delta(each) for each in operator.inputs]
        if not operator.timed and not self._changes.keys() & names:
            return
        if operator.keeps and all(wanted.weighted for wanted in operator.keeps):
            return self._weighted(number, operator)
        changed = [name in self._changes for name in names]
        deltas = list(map(self._needed, operator.inputs))
        arrangements = self._tree.kept.get(number, ())
        found = [f"_f{number}_{n}" for n in range(len(arrangements))]
        changes, result = list(map(Change, deltas)), ""
        for name, wanted in zip(found, operator.keeps, strict=True):
            if wanted.input == RESULT:
                result = name
            else:
                new = f"{name}_new" if changed[wanted.input] else name
                keys = f"{name}_keys" if wanted.rare else ""
                changes[wanted.input] = Change(deltas[wanted.input], name, new, keys)
        lookups = [operator.lookups(n, changes, found[:n]) for n in range(len(found))]
        sql = operator.delta(changes, result)
        for n, (name, wanted) in enumerate(zip(found, operator.keeps, strict=True)):
            change = None if wanted.input == RESULT else changes[wanted.input]
            reading, keys = " ".join([sql, *lookups[n + 1 :]]), lookups[n]
            if wanted.rare:
                self._db.execute(f"CREATE TEMP TABLE {name}_keys AS {keys}")
                keys = f"SELECT * FROM {name}_keys"
            rows = self._fetched(name, arrangements[n], keys, not wanted.weighted, change)
            if wanted.weighted and change is not None:
                changes[wanted.input] = self._with_weights(name, arrangements[n], rows, change)
                sql = operator.delta(changes, result)
            else:
                self._create_found(name, arrangements[n], rows, change, reading)
        if number in self._tree.results:
            sql = self._from_result(number, operator, sql)
        self._made(number, operator, sql)

    def _weighted(self, number: int, operator: Operator) -> None:
        """As `_operator`, if all rows are looked up with their weights."""
        names = [self._tree.delta(each) for each in operator.inputs]
        changes = [Change(self._changes.get(name, "")) for name in names]
        arrangements = zip(operator.keeps, self._tree.kept[number], strict=True)
        is_net = sum(bool(each.delta) for each in changes) == 1
        for n, (wanted, kept) in enumerate(arrangements):
            name, change = f"_f{number}_{n}", changes[wanted.input]
            keys = operator.lookups(n, changes, ())
            rows = self._fetched(name, kept, keys, summed=False) if keys else []
            is_net = is_net and all(pc.min(each.column(COUNT)).as_py() > 0 for each in rows)
            changes[wanted.input] = self._with_weights(name, kept, rows, change)
        self._made(number, operator, operator.delta(changes), is_net)

    def _with_weights(
        self, name: str, kept: Arrangement, rows: list[pa.Table], change: Change
    ) -> Change:
        """A change with the SQL of the found rows before and after it, with the weight of each."""
        delta, types = change.delta, {**kept.operator.types, WEIGHT: "BIGINT"}
        old = kept.weighted(f"{name}_raw") if rows else _no_rows(types)
        columns = ", ".join(map(quote, types))
        new = f"{old} UNION ALL SELECT {columns} FROM {delta}" if delta else old
        if change.keys:
            same = same_keys(kept.by, "_t") or "true"
            exists = f"EXISTS (SELECT 1 FROM {change.keys} AS _t WHERE {same})"
            new = f"SELECT {kept.alias}.* FROM ({new}) AS {kept.alias} WHERE {exists}"
        return Change(delta, f"({old})", f"({new})", change.keys)

    def _made(self, number: int, operator: Operator, delta: str, may_be_net: bool = True) -> None:
        """Make the relation of an operator's change."""
        if number in self._tree.passed:
            self._changes[f"_d{number}"] = f"({delta})"
        else:
            is_net = may_be_net and operator.is_net and number not in self._tree.over_gross
            self._create(f"_d{number}", delta if is_net else net(operator, f"({delta})"))

    def _from_result(self, number: int, operator: Operator, delta: str) -> str:
        """The SQL of a change whose rows that leave are those of the kept result."""
        name, kept = f"_r{number}", self._tree.results[number]
        self._db.execute(f"CREATE TEMP TABLE {name} AS {delta}")
        keys = f"SELECT {keys_of(kept.by)} FROM {name} AS {kept.alias}"
        old = f"{name}_old"
        self._create_old(old, kept, self._fetched(old, kept, keys))
        columns = ", ".join(map(quote, operator.columns))
        same = same_keys(kept.by, "_t") or "true"
        return (
            f"SELECT {columns}, {WEIGHT} FROM {name} WHERE {WEIGHT} > 0 UNION ALL "
            f"SELECT {columns}, -1 AS {WEIGHT} FROM {old} AS {kept.alias} "
            f"WHERE EXISTS (SELECT 1 FROM ({keys}) AS _t WHERE {same})"
        )

    def _create_found(
        self,
        name: str,
        kept: Arrangement,
        rows: list[pa.Table],
        change: Change | None,
        reading: str,
    ) -> None:
        """Create the relations of found rows, before and after a change, that `reading` reads."""
        if _reads(reading, name):
            self._create_old(name, kept, rows)
        if change is None or change.new == change.old or not _reads(reading, change.new):
            return
        new = net(kept.operator, self._with_weights(name, kept, rows, change).new)
        # A removed row may have another key than those looked up.
        self._bag(change.new, kept.operator, f"{new} AND sum({WEIGHT}) > 0")

    def _fetched(
        self,
        name: str,
        kept: Arrangement,
        keys: str,
        summed: bool = True,
        change: Change | None = None,
    ) -> list[pa.Table]:
        """The parts of segments that have some keys, by segment; the relation `<name>_raw`.

        Counts of rows that are not `summed` later are checked by key. Of an arrangement with
        `leading` rows, only those that matter after the `change`.
        """
        segments = [self._store.segment(file) for file in self.segments[kept.name]]
        if kept.by or (kept.leading and change):
            hashes = self._hashes(kept, keys)
            if kept.leading and change:
                rows = self._leading(name, kept, hashes, keys, change)
            else:
                rows = self._found(segments, hashes)
            if not summed:
                _check_counts(rows, hashes)
        else:
            asked = self._db.execute(f"SELECT 1 FROM ({keys}) LIMIT 1").fetchall()
            rows = [each.table for each in segments if each.num_rows] if asked else []
        if rows:
            self._db.register(f"{name}_raw", pa.concat_tables(rows))
        return rows

    def _hashes(self, kept: Arrangement, keys: str) -> Any:
        """The hashes of keys, sorted, each once."""
        sql = f"SELECT {hash_of(_names(kept), kept.kinds)} AS h FROM ({keys})"
        return distinct(self._db.execute(sql).fetchnumpy()["h"])

    def _found(self, segments: Sequence[Segment], hashes: Any) -> list[pa.Table]:
        """The rows of segments with some hashes, by segment."""
        run = map if len(hashes) < _FEW_HASHES else self._threads.map
        found = [run(AskedPart.found, each.parts(hashes)) for each in segments]
        batches = [list(itertools.chain.from_iterable(parts)) for parts in found]
        return [pa.Table.from_batches(each) for each in batches if each]

    def _leading(
        self, name: str, kept: Arrangement, hashes: Any, keys: str, change: Change
    ) -> list[pa.Table]:
        """The leading rows of some keys, as many as matter after a change, or all their rows.

        The first rows of a segment have all its rows before the last of these. So what comes before
        the last ones of all segments is complete. If that is too little for a key, more is read.
        """
        leading, segments = kept.leading, [self._store.segment(f) for f in self.segments[kept.name]]
        assert leading is not None
        first, done = FIRST_ROWS + leading.most, list[pa.Table]()
        while len(hashes):
            parts = [part for each in segments for part in each.parts(hashes)]
            if sum(part.num_rows for part in parts) <= WHOLE_ROWS:
                return [*done, *self._found(segments, hashes)]
            found = list(self._threads.map(AskedPart.first, parts, itertools.repeat(first)))
            rows = [pa.Table.from_batches(taken) for taken, _ in found if taken]
            last = [batch for _, each in found for batch in each]
            if not last:
                return [*done, *rows]
            hashes, complete = self._complete(name, kept, keys, change, rows, last)
            done.append(complete)
            first *= _DEEPER
        return done

    def _complete(
        self,
        name: str,
        kept: Arrangement,
        keys: str,
        change: Change,
        rows: list[pa.Table],
        last: list[pa.RecordBatch],
    ) -> tuple[Any, pa.Table]:
        """The hashes of keys with too few rows before the `last` ones, and the others' rows."""
        leading = kept.leading
        assert leading is not None
        self._db.register(f"{name}_raw", pa.concat_tables(rows))
        self._db.register(f"{name}_last", pa.Table.from_batches(last))
        first, furthest = leading.extremes
        ends = f"{first}({kept.sort_column}) AS _end FROM {name}_last GROUP BY 1"
        self._db.execute(f"CREATE OR REPLACE TEMP TABLE {name}_ends AS SELECT {HASH}, {ends}")
        # Few rows of a change come before the furthest of these ends.
        self._db.execute(
            f"SET VARIABLE furthest = (SELECT if(bool_and(_end IS NOT NULL), {furthest}(_end), "
            f"NULL) FROM {name}_ends)"
        )
        changed = self._with_weights(name, kept, rows, change).new
        names, value = _names(kept), quote(leading.column)
        near = leading.leads(value, "getvariable('furthest')")
        counted = (
            f"SELECT {keys_of(kept.by)}, {value} AS _v, sum({WEIGHT}) AS _n "
            f"FROM {changed} AS {kept.alias} WHERE {near} "
            f"GROUP BY ALL HAVING sum({WEIGHT}) > 0"
        )
        enough = (
            f"SELECT {keys_of(names)} FROM ({counted}) JOIN {name}_ends "
            f"ON {hash_of(names, kept.kinds)} = {HASH} WHERE {leading.leads('_v', '_end')} "
            f"GROUP BY ALL HAVING sum(_n) >= {leading.most}"
        )
        same = same_keys([f"_q.{each}" for each in names], "_t") or "true"
        short = self._hashes(
            kept,
            f"SELECT * FROM ({keys}) AS _q WHERE {hash_of(names, kept.kinds)} IN "
            f"(SELECT {HASH} FROM {name}_ends) AND NOT EXISTS "
            f"(SELECT 1 FROM ({enough}) AS _t WHERE {same})",
        )
        self._db.register(f"{name}_short", pa.table({HASH: short}))
        complete = self._db.sql(
            f"SELECT _r.* FROM {name}_raw AS _r LEFT JOIN {name}_ends AS _e USING ({HASH}) "
            f"WHERE {HASH} NOT IN (SELECT {HASH} FROM {name}_short) AND "
            f"(_e.{HASH} IS NULL OR {leading.leads(kept.sort_column, '_end')}) ORDER BY {HASH}"
        ).to_arrow_table()
        return short, complete

    def _create_old(self, name: str, kept: Arrangement, rows: list[pa.Table]) -> None:
        """Create the relation of found rows, which `<name>_raw` has."""
        if not rows:
            self._db.execute(f"CREATE TEMP VIEW {name} AS {_no_rows(kept.operator.types)}")
        elif not (kept.where or kept.leading) and _are_apart(rows):
            self._unpack(name, kept, rows)
        else:
            self._bag(name, kept.operator, net(kept.operator, f"({kept.weighted(f'{name}_raw')})"))

    def _unpack(self, name: str, kept: Arrangement, rows: Sequence[pa.Table]) -> None:
        """Create the relation of rows whose counts are those of `rows`, which `<name>_raw` has."""
        extremes = [pc.min_max(each.column(COUNT)).as_py() for each in rows if each.num_rows]
        if any(each["min"] < 0 for each in extremes):
            raise StateError(_NEGATIVE)
        copies = f", range({COUNT})" if any(each["max"] > 1 for each in extremes) else ""
        self._db.execute(f"CREATE TEMP VIEW {name} AS {kept.unpacked(f'{name}_raw')}{copies}")

    def _bag(self, name: str, operator: Operator, sql: str) -> None:
        """Create a relation of rows, each as often as its `WEIGHT` says."""
        columns = ", ".join(f"_r.{quote(name)}" for name in operator.columns)
        least = f"if({WEIGHT} < 0, error('{_NEGATIVE}'), {WEIGHT})"
        rows = f"SELECT {columns} FROM ({sql}) AS _r, range({least})"
        self._db.execute(f"CREATE TEMP TABLE {name} AS {rows}")

    def _create(self, name: str, sql: str) -> bool:
        """Create the table of a change; False if it is empty."""
        ((rows,),) = self._db.execute(f"CREATE TEMP TABLE {name} AS {sql}").fetchall()
        if rows:
            self._changes[name], self._stored[name] = name, rows
            return True
        self._db.execute(f"DROP TABLE {name}")
        return False

    def _needed(self, operator: Operator) -> str:
        """The relation of an operator's change, also if it is empty."""
        none = f"({_no_rows({**operator.types, WEIGHT: 'BIGINT'})})"
        return self._changes.get(self._tree.delta(operator), none)

    def _change_segment(
        self, kept: Arrangement, name: str, rows: int, threads: ThreadPoolExecutor
    ) -> Callable[[], SegmentFile]:
        """Write the rows of a change, in another thread if they are few; call it to wait for it."""
        sql = kept.stored(name, WEIGHT)
        if rows > _SORTED_ROWS:
            done = self._segment(kept, sql)
            return lambda: done
        table, folder = self._db.sql(sql).to_arrow_table(), self._store.folder
        return threads.submit(
            lambda: written(folder, table.schema, kept.sorted(table).to_batches())
        ).result

    def _add(self, name: str, kept: Arrangement, segment: SegmentFile) -> None:
        """Add the segment of a change to an arrangement, and merge its segments if many."""
        files = (*self.segments[name], segment)
        first = mergeable([file.rows for file in files])
        same = files[first:]
        if len(same) > 1:
            if sum(file.rows for file in same) > MERGED_ROWS and len(files) <= MOST_FILES:
                self.merges.append((same, kept))
            else:
                files = (*files[:first], merged(self._db, self._store, same, kept))
        self.segments[name] = files

    def _segment(self, kept: Arrangement, sql: str) -> SegmentFile:
        """Write rows as one segment of an arrangement."""
        reader = self._db.sql(f"{sql} ORDER BY {kept.order_by}").to_arrow_reader(_BATCH_ROWS)
        return written(self._store.folder, reader.schema, reader)

    def build(self) -> None:
        """Compute the kept rows that are missing from the relations of the sources."""
        arrangements = self._tree.arrangements
        missing = [each for each in arrangements.values() if each.name not in self.segments]
        read = {id(each) for kept in missing for each in walk(kept.operator)}
        scans = [each for each in self._tree.operators if isinstance(each, Scan)]
        made: dict[int, str] = {}
        for number, source in enumerate(self._tree.sources):
            own = [each for each in scans if each.relation in source.relations]
            kept, name = source.arrangement, f"_w{number}"
            if kept not in missing and not any(id(each) in read for each in own):
                continue
            columns = ", ".join(map(quote, source.scan.columns))
            scanned = f"SELECT {columns} FROM {quote(source.name)}"
            if kept is None:
                self._db.execute(f"CREATE TEMP TABLE {name} AS {scanned}")
            else:
                self._keep(kept, f"({scanned})")
                self._kept_view(name, kept)
            made |= {id(each): f"({each.whole([name])})" for each in own}
        for arrangement in arrangements.values():
            number = self._tree.numbers.get(id(arrangement.operator), -1)
            if id(arrangement.operator) in read:
                self._keep(arrangement, f"({before(whole_sql(arrangement.operator, made))})")
                if number >= 0 and id(arrangement.operator) not in made:
                    self._kept_view(f"_a{number}", arrangement)
                    made[id(arrangement.operator)] = f"_a{number}"

    def _keep(self, arrangement: Arrangement, rows: str) -> None:
        """Write all rows of an arrangement, unless there are some."""
        if arrangement.name not in self.segments:
            self.segments[arrangement.name] = (
                self._segment(arrangement, arrangement.stored(rows, "1")),
            )

    def _kept_view(self, name: str, arrangement: Arrangement) -> None:
        """Make a relation of the rows of an arrangement, in one segment."""
        files = self.segments[arrangement.name]
        if len(files) > 1:
            files = (merged(self._db, self._store, files, arrangement),)
            self.segments[arrangement.name] = files
        rows = self._store.segment(files[0]).table
        self._db.register(f"{name}_raw", rows)
        self._unpack(name, arrangement, [rows])


def _check_counts(tables: Sequence[pa.Table], hashes: Any) -> None:
    """Raise `StateError` if the sum of the counts of a hash is negative."""
    sums = np.zeros(len(hashes), np.int64)
    for batch in itertools.chain.from_iterable(each.to_batches() for each in tables):
        own, counts = batch.column(HASH).to_numpy(), batch.column(COUNT).to_numpy()
        # Batches are sorted by hash.
        first = np.flatnonzero(np.concatenate(([True], own[1:] != own[:-1])))
        sums[np.searchsorted(hashes, own[first])] += np.add.reduceat(counts, first)
    if sums.min(initial=0) < 0:
        raise StateError(_NEGATIVE)


def _names(kept: Arrangement) -> list[str]:
    """The columns of looked-up keys."""
    return [f"_k{n}" for n in range(len(kept.by))]


def _no_rows(types: Mapping[str, str]) -> str:
    nulls = (f"CAST(NULL AS {kind}) AS {quote(name)}" for name, kind in types.items())
    return f"SELECT {', '.join(nulls)} WHERE false"


def _reads(sql: str, relation: str) -> bool:
    return re.search(rf"\b{relation}\b", sql) is not None


def _are_apart(tables: list[pa.Table]) -> bool:
    """Whether no hash is in two of the tables, so that their counts are those of the rows."""
    hashes = [distinct(each.column(HASH).to_numpy()) for each in tables]
    return len(hashes) == 1 or len(distinct(np.concatenate(hashes))) == sum(map(len, hashes))


def merged(
    connection: duckdb.DuckDBPyConnection, store: StateStore, files: Segments, kept: Arrangement
) -> SegmentFile:
    """Write one segment of an arrangement instead of several ones."""
    found: Iterator[pa.RecordBatch] = (
        batch
        for part in parts([store.segment(file) for file in files])
        for batch in _net_rows(connection, part, kept)
    )
    first = next(found)
    return written(store.folder, first.schema, itertools.chain([first], found))


def merge_beside(
    connection: duckdb.DuckDBPyConnection, store: StateStore, files: Segments, kept: Arrangement
) -> None:
    """Merge segments, and leave the record of it for the next batch."""
    names = tuple(file.name for file in files)
    if not any(set(names) & set(merge.inputs) for merge in store.merges()):
        store.record(Merge(names, merged(connection, store, files, kept)))


def _net_rows(
    connection: duckdb.DuckDBPyConnection, rows: pa.Table, kept: Arrangement
) -> list[pa.RecordBatch]:
    """The sums of rows of segments: at least one batch, which may be empty."""
    connection.register("_merged", rows)
    table = connection.sql(kept.merged("_merged")).to_arrow_table()
    connection.unregister("_merged")
    return table.to_batches() or [pa.RecordBatch.from_pylist([], table.schema)]
