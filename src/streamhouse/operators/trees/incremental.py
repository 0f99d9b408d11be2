"""Incremental execution of a tree: changes of the inputs to changes of the result, and kept rows.

Each operator gets the changes of its inputs, and the rows that its delta form looks up from
arrangements. Operators whose inputs do not change are skipped. New rows of arrangements are written
as new segments, so the kept rows from before stay until the refresh is done.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamhouse.operators.operator import (
    RESULT,
    WEIGHT,
    Change,
    Operator,
    before,
    same_keys,
    walk,
)  # fmt: skip
from streamhouse.operators.operator import keys as keys_of
from streamhouse.operators.scan import Scan
from streamhouse.operators.trees.arrangement import Arrangement, hash_of, net
from streamhouse.operators.trees.compiled_tree import CompiledTree, Source
from streamhouse.operators.trees.tree_sql import whole_sql
from streamhouse.sql.expressions.binder import quote
from streamhouse.state.manifest import Segments
from streamhouse.state.merges import Merge, mergeable, parts
from streamhouse.state.segment import COUNT, HASH, SegmentFile, StateError, written
from streamhouse.state.store import StateStore

if TYPE_CHECKING:
    import duckdb

MERGED_ROWS, MOST_FILES = 100_000, 64
"""More rows are merged beside the batches, unless that leaves more files of an arrangement."""
_BATCH_ROWS = 65_536
_NEGATIVE = "kept rows have negative counts"


@dataclass(frozen=True)
class SourceChange:
    """The rows that a table got, with the columns of `Source.scan`, and, if it has a primary key,
    the keys whose rows may have changed."""

    rows: pa.Table
    keys: pa.Table | None = None


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
        self._created: set[str] = set()

    def apply(self, changes: Mapping[Source, SourceChange]) -> str:
        """Compute the change of the result; returns the name of its table, with `WEIGHT` last."""
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
        for name, arrangement in self._tree.arrangements.items():
            delta = self._delta_of(arrangement)
            if delta in self._created:
                self._add(name, arrangement, delta)
        return self._needed(self._tree.root)

    def _delta_of(self, arrangement: Arrangement) -> str:
        for number, source in enumerate(self._tree.sources):
            if arrangement is source.arrangement:
                return f"_s{number}"
        return self._tree.delta(arrangement.operator)

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
        keys = f"(SELECT DISTINCT {keys_of(by)} FROM _keys{number} AS {kept.alias})"
        self._find(f"_p{number}", kept, f"SELECT * FROM {keys}")
        same = " AND ".join(f"{sql} = _t._k{n}" for n, sql in enumerate(by))
        old, new = (
            f"SELECT {columns}, {weight} AS {WEIGHT} FROM {rows} AS {kept.alias} "
            f"WHERE EXISTS (SELECT 1 FROM {keys} AS _t WHERE {same})"
            for rows, weight in ((f"_p{number}", -1), (f"_in{number}", 1))
        )
        return "" if self._create(name, net(scan, f"({old} UNION ALL {new})")) else name

    def _operator(self, number: int, operator: Operator) -> None:
        """Create the table of the change of an operator's result, unless it is empty."""
        deltas = [self._tree.delta(each) for each in operator.inputs]
        if not operator.timed and not self._created.intersection(deltas):
            return
        for each in operator.inputs:
            self._needed(each)
        arrangements = self._tree.kept.get(number, ())
        found = [f"_f{number}_{n}" for n in range(len(arrangements))]
        changes, result = list(map(Change, deltas)), ""
        for name, wanted in zip(found, operator.keeps, strict=True):
            if wanted.input == RESULT:
                result = name
            else:
                delta = deltas[wanted.input]
                new = f"{name}_new" if delta in self._created else name
                changes[wanted.input] = Change(delta, name, new)
        lookups = [operator.lookups(n, changes, found[:n]) for n in range(len(found))]
        sql = operator.delta(changes, result)
        for n, (name, wanted) in enumerate(zip(found, operator.keeps, strict=True)):
            change = None if wanted.input == RESULT else changes[wanted.input]
            reading = " ".join([sql, *lookups[n + 1 :]])
            keys = lookups[n] if wanted.rare else ""
            rows = self._fetched(name, arrangements[n], lookups[n])
            self._create_found(name, arrangements[n], rows, change, reading, keys)
        if number in self._tree.results:
            sql = self._from_result(number, operator, sql)
        self._made(number, operator, sql)

    def _made(self, number: int, operator: Operator, delta: str) -> None:
        """Create the relation of an operator's change."""
        if number in self._tree.passed:
            # It is not empty, because that of its input is not.
            self._db.execute(f"CREATE TEMP VIEW _d{number} AS {delta}")
            self._created.add(f"_d{number}")
        else:
            sql = delta if operator.is_net else net(operator, f"({delta})")
            self._create(f"_d{number}", sql)

    def _from_result(self, number: int, operator: Operator, delta: str) -> str:
        """The SQL of a change whose rows that leave are those of the kept result."""
        name, kept = f"_r{number}", self._tree.results[number]
        self._db.execute(f"CREATE TEMP TABLE {name} AS {delta}")
        keys = f"SELECT DISTINCT {keys_of(kept.by)} FROM {name} AS {kept.alias}"
        old = self._find(f"{name}_old", kept, keys)
        columns = ", ".join(map(quote, operator.columns))
        same = same_keys(kept.by, "_t") or "true"
        return (
            f"SELECT {columns}, {WEIGHT} FROM {name} WHERE {WEIGHT} > 0 UNION ALL "
            f"SELECT {columns}, -1 AS {WEIGHT} FROM {old} AS {kept.alias} "
            f"WHERE EXISTS (SELECT 1 FROM ({keys}) AS _t WHERE {same})"
        )

    def _find(self, name: str, kept: Arrangement, keys: str) -> str:
        """Create the relation of the kept rows with some keys."""
        self._create_old(name, kept, self._fetched(name, kept, keys))
        return name

    def _create_found(
        self,
        name: str,
        kept: Arrangement,
        rows: list[pa.Table],
        change: Change | None,
        reading: str,
        keys: str,
    ) -> None:
        """Create the relations of found rows before and after a change that the SQL `reading` has.

        If `keys` are given, the change has many rows with other keys.
        """
        old = _reads(reading, name)
        if old:
            self._create_old(name, kept, rows)
        if change is None or change.new == change.old or not _reads(reading, change.new):
            return
        columns = ", ".join(map(quote, kept.operator.columns))
        parts = [f"SELECT {columns}, {WEIGHT} FROM {change.delta} AS {kept.alias}"]
        if keys:
            same = same_keys(kept.by, "_t") or "true"
            parts[0] += f" WHERE EXISTS (SELECT 1 FROM ({keys}) AS _t WHERE {same})"
        if old:
            parts.append(f"SELECT {columns}, 1 AS {WEIGHT} FROM {name}")
        elif rows:
            parts.append(kept.weighted(f"{name}_raw"))
        both = net(kept.operator, f"({' UNION ALL '.join(parts)})")
        # A removed row may have another key than those looked up.
        self._bag(change.new, kept.operator, f"{both} AND sum({WEIGHT}) > 0")

    def _fetched(self, name: str, kept: Arrangement, keys: str) -> list[pa.Table]:
        """The parts of segments that have some keys, by segment; the relation `<name>_raw`."""
        segments = [self._store.segment(file) for file in self.segments[kept.name]]
        if kept.by:
            names = [f"_k{n}" for n in range(len(kept.by))]
            sql = f"SELECT DISTINCT {hash_of(names, kept.kinds)} AS h FROM ({keys})"
            hashes: Any = np.sort(self._db.sql(sql).fetchnumpy()["h"])
            found = (list(each.found(hashes)) for each in segments)
            rows = [pa.Table.from_batches(batches) for batches in found if batches]
        else:
            asked = self._db.execute(f"SELECT 1 FROM ({keys}) LIMIT 1").fetchall()
            rows = [each.table for each in segments if each.num_rows] if asked else []
        if rows:
            self._db.register(f"{name}_raw", pa.concat_tables(rows))
        return rows

    def _create_old(self, name: str, kept: Arrangement, rows: list[pa.Table]) -> None:
        """Create the relation of found rows, which `<name>_raw` has."""
        if not rows:
            self._empty(name, kept.operator)
        elif not kept.where and _are_apart(rows):
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
            self._created.add(name)
            return True
        self._db.execute(f"DROP TABLE {name}")
        return False

    def _needed(self, operator: Operator) -> str:
        """The table of an operator's change, which is made if it is empty."""
        name = self._tree.delta(operator)
        if name not in self._created:
            self._db.execute(f"DROP TABLE IF EXISTS {name}")
            self._empty(name, operator, f"{WEIGHT} BIGINT")
        return name

    def _empty(self, name: str, operator: Operator, *more: str) -> None:
        columns = [f"{quote(column)} {kind}" for column, kind in operator.types.items()]
        self._db.execute(f"CREATE TEMP TABLE {name} ({', '.join([*columns, *more])})")

    def _add(self, name: str, kept: Arrangement, delta: str) -> None:
        """Add a change to an arrangement, and merge its segments if there are many."""
        files = (*self.segments[name], self._segment(kept.stored(delta, WEIGHT)))
        first = mergeable([file.rows for file in files])
        same = files[first:]
        if len(same) > 1:
            if sum(file.rows for file in same) > MERGED_ROWS and len(files) <= MOST_FILES:
                self.merges.append((same, kept))
            else:
                files = (*files[:first], merged(self._db, self._store, same, kept))
        self.segments[name] = files

    def _segment(self, sql: str) -> Any:
        reader = self._db.sql(sql).to_arrow_reader(_BATCH_ROWS)
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
            self.segments[arrangement.name] = (self._segment(arrangement.stored(rows, "1")),)

    def _kept_view(self, name: str, arrangement: Arrangement) -> None:
        """Make a relation of the rows of an arrangement, in one segment."""
        files = self.segments[arrangement.name]
        if len(files) > 1:
            files = (merged(self._db, self._store, files, arrangement),)
            self.segments[arrangement.name] = files
        rows = self._store.segment(files[0]).table
        self._db.register(f"{name}_raw", rows)
        self._unpack(name, arrangement, [rows])


def _reads(sql: str, relation: str) -> bool:
    return re.search(rf"\b{relation}\b", sql) is not None


def _are_apart(tables: list[pa.Table]) -> bool:
    """Whether no hash is in two of the tables, so that their counts are those of the rows."""
    hashes = [np.unique(each.column(HASH).to_numpy()) for each in tables]
    return len(hashes) == 1 or len(np.unique(np.concatenate(hashes))) == sum(map(len, hashes))


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
