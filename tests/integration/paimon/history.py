"""A random history of one table, each step applied to the table and to a plain model."""

from __future__ import annotations

import gc
import multiprocessing
import random
import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.integration.paimon.history_changes import change_rows, overwrite
from tests.integration.paimon.history_writer import STEPS, write
from tests.integration.paimon.model import (
    PARTITIONS,
    Field,
    Model,
    State,
    Written,
    displayed,
    ordered,
)
from tests.java_reads import java_buckets, java_rows
from tests.waiting import DEADLINE_S

from streamhouse.errors import DataLossError, SchemaChangeError, StreamhouseError
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.changelog.stream_source import PaimonSource
from streamhouse.paimon.java.sidecar import Sidecar
from streamhouse.paimon.maintenance.expiry import expire
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.storage.lock import commit_lock
from streamhouse.paimon.write.commit import TableCommitter
from streamhouse.paimon.write.table_writer import query_tag
from streamhouse.source import ROW_KIND
from streamhouse.sql.plan import AsOf, Column
from streamhouse.sql.schema_changes import (
    AddColumn,
    ColumnPosition,
    DropColumn,
    MoveColumn,
    RenameColumn,
    SetColumnComment,
    SetType,
)

KEYS = 24
KEPT = {"snapshot.num-retained.min": "3", "snapshot.num-retained.max": "12",
        "snapshot.time-retained": "1 ms", "write-only": "true"}  # fmt: skip
_BASE = (("id", "INT"), ("v", "INT"), ("w", "INT"), ("s", "STRING"))
_MERGED = {
    "merge-engine": "aggregation",
    "fields.v.aggregate-function": "sum",
    "fields.w.aggregate-function": "max",
}
_SUMS = {**_MERGED, "fields.w.ignore-retract": "true"}


_REMOVE = "remove-record-on-delete"


@dataclass(frozen=True)
class Kind:
    """A kind of table that a history is played on.

    `retracts`: rows are written with `-D`; it takes `updates`, and `deletes`.
    `partition` and `sequence` are columns.
    """

    name: str
    engine: str
    options: dict[str, str]
    deferred: bool = False
    retracts: bool = True
    deletes: bool = True
    updates: bool = True
    partition: str | None = None
    sequence: str | None = None


KINDS = (
    Kind("plain", "deduplicate", {"bucket": "1"}),
    Kind("input", "deduplicate", {"bucket": "2", "changelog-producer": "input"}),
    Kind("lookup", "deduplicate", {"bucket": "1", "changelog-producer": "lookup"}),
    Kind(
        "sums",
        "aggregation",
        {**_SUMS, "bucket": "2", "changelog-producer": "full-compaction"},
        deletes=False,
    ),
    Kind(
        "orc",
        "aggregation",
        {**_MERGED, "bucket": "1", "file.format": "orc", f"aggregation.{_REMOVE}": "true"},
        retracts=False,
        updates=False,
    ),
    Kind(
        "parts",
        "partial-update",
        {"bucket": "2", "merge-engine": "partial-update", f"partial-update.{_REMOVE}": "true"},
    ),
    Kind("first", "first-row", {"bucket": "1", "merge-engine": "first-row"}, deferred=True),
    Kind(
        "vectors",
        "deduplicate",
        {"bucket": "2", "deletion-vectors.enabled": "true"},
        deferred=True,
    ),
    Kind("days", "deduplicate", {"bucket": "2"}, partition="p"),
    Kind(
        "late",
        "deduplicate",
        {"bucket": "1", "sequence.field": "w", "changelog-producer": "lookup"},
        retracts=False,
        deletes=False,
        partition="p",
        sequence="w",
    ),
    Kind("append", "append", {"bucket": "-1"}),
)


class Consumer:
    """Follows a table as a continuous query does, and keeps what its changes add up to."""

    def __init__(self, warehouse: Warehouse, identifier: str, model: Model) -> None:
        self._source = PaimonSource(warehouse.options, identifier)
        self._fields = {field.name: field.id for field in model.fields}
        self._key = [field.name for field in model.fields if field.id in model.key]
        self._offset: dict[str, Any] = {}
        self.rows: dict[Any, dict[str, Any]] = {}
        self._count = 0

    def poll(self) -> None:
        """Take all changes."""
        end = self._source.latest_offset(self._offset)
        for partition in self._source.partitions(self._offset, end):
            for batch in self._source.read(partition):
                for row in batch.to_pylist():
                    self._take(row.pop(ROW_KIND, "+I"), row)
        self._source.committed(end)
        self._offset = end

    def _take(self, kind: str, row: dict[str, Any]) -> None:
        key = tuple(row[name] for name in self._key)
        if not self._source.changelog:
            self._count += 1
            self.rows[self._count] = row
        elif kind in ("+I", "+U"):
            self.rows[key] = row
        elif kind == "-D":
            self.rows.pop(key, None)

    def same(self, model: Model) -> None:
        """Its rows must be the model's, in the columns that it began with."""
        now = {field.id: field for field in model.fields}
        names = [name for name, number in self._fields.items() if number in now]
        fields = [now[self._fields[name]] for name in names]
        kept = ordered(
            tuple(displayed(one, row[name]) for name, one in zip(names, fields, strict=True))
            for row in self.rows.values()
        )
        rows = model.state.rows.values()
        assert kept == ordered(tuple(displayed(f, row.get(f.id)) for f in fields) for row in rows)


class History:
    """Plays steps; every step's choices come from `seed` alone."""

    def __init__(self, warehouse: Warehouse, java: Sidecar, kind: Kind, seed: int) -> None:
        self.random = random.Random(f"{kind.name} {seed}")
        self.warehouse, self.java, self.kind = warehouse, java, kind
        self.identifier = f"db.{kind.name}"
        self.model = _model(kind)
        columns = [Column(f.name, f.type) for f in self.model.fields]
        keys = [f.name for f in self.model.fields if f.id in self.model.key]
        warehouse.create_table(
            "db",
            kind.name,
            columns,
            [] if kind.engine == "append" else keys,
            [kind.partition] if kind.partition else [],
            {**KEPT, **kind.options},
        )
        self.keys = KEYS
        self.states: dict[int, State] = {}
        self.tags: dict[str, State] = {}
        # The users' names are random, as those of queries are; nothing depends on them.
        self.users = [str(uuid.uuid4()) for _ in range(3)]
        self.batches = dict.fromkeys(self.users, 0)
        self.committers: dict[str, TableCommitter] = {}
        self.consumer = Consumer(warehouse, self.identifier, self.model)
        self.log: list[str] = []

    @property
    def table(self) -> Table:
        return self.warehouse.table(self.identifier)

    def step(self) -> str:
        """One random step, checked; what it was."""
        steps: list[tuple[int, Callable[[], str | None]]] = [
            (40, self._write), (5, self._replay), (6, self._killed), (8, self._compact),
            (5, self._full), (4, self._manifests), (6, self._expire), (4, self._tag),
            (3, self._branch), (3, self._rollback), (14, self._alter), (8, self._change_rows),
            (5, self._overwrite), (2, self._killed_sidecar),
        ]  # fmt: skip
        chosen = self.random.choices([one for _, one in steps], [w for w, _ in steps])[0]
        description = chosen() or "nothing to do"
        self.log.append(f"{len(self.log)} {chosen.__name__[1:]}: {description}")
        self.check()
        return self.log[-1]

    def check(self) -> None:
        """We read what the model holds, now and back in time; so does the Java core."""
        latest = self.table.latest_snapshot_id()
        if latest is not None:
            self.states[latest] = self.model.snapshot()
        names = self.model.names()
        assert list(self.table.arrow_schema.names) == names
        assert self._ours() == self.model.rows()
        theirs = java_rows(self.java, self.identifier)
        assert theirs.schema.names == names
        assert ordered(tuple(row.values()) for row in theirs.to_pylist()) == self.model.rows()
        self._check_past()
        self._check_consumer()

    def _ours(self, **options: Any) -> list[tuple[Any, ...]]:
        batches = self.table.read(**options)
        return ordered(tuple(row.values()) for batch in batches for row in batch.to_pylist())

    def _check_past(self) -> None:
        table = self.table
        earliest, latest = table.earliest_snapshot_id(), table.latest_snapshot_id()
        if earliest is None or latest is None:
            return
        known = [state for state in self.states if earliest <= state <= latest]
        snapshot = self.random.choice(known)
        assert self._ours(snapshot=snapshot) == self.model.rows(self.states[snapshot]), snapshot
        for tag in self.random.sample(sorted(self.tags), min(1, len(self.tags))):
            then = self.warehouse.readable(self.identifier, AsOf(tag=tag))
            rows = [row for batch in then.read(["id"]) for row in batch.to_pylist()]
            held = self.tags[tag].rows.values()
            assert ordered((row["id"],) for row in rows) == ordered((row[0],) for row in held)

    def _check_consumer(self) -> None:
        try:
            self.consumer.poll()
        except StreamhouseError as error:
            # A column that it had is gone, or the table went back in time, or rows of a table
            # that has no row kinds have been taken away: it starts anew.
            taken = self.kind.engine == "append" and "scan.overwrite" in str(error)
            if not taken and not isinstance(error, (SchemaChangeError, DataLossError)):
                raise
            self.consumer = Consumer(self.warehouse, self.identifier, self.model)
            self.consumer.poll()
        if self._followed():
            self.consumer.same(self.model)

    def _followed(self) -> bool:
        """Whether the changes so far are all there is: else they come with a compaction."""
        producer = self.kind.options.get("changelog-producer", "none")
        compacting = producer in ("lookup", "full-compaction")
        return not compacting or not self._level0()

    def _level0(self) -> bool:
        if self.kind.options.get("changelog-producer") == "full-compaction":
            return any(
                bucket.files > 1 or bucket.level0
                for bucket in java_buckets(self.java, self.identifier)
            )
        return any(bucket.level0 for bucket in java_buckets(self.java, self.identifier))

    # Rows

    def _rows(self) -> list[Written]:
        count = self.random.choice([1, 2, 5, 20])
        return [self.row(self.kind.retracts) for _ in range(count)]

    def row(self, deletes: bool) -> Written:
        """A random row; of the kind `-D` now and then, if there may be `deletes`."""
        kind, key = "+I", self.random.randrange(KEYS)
        if not deletes:
            pass
        elif self.kind.engine == "deduplicate" and self.random.random() < 0.2:
            kind = "-D"
        elif self.kind.engine == "aggregation" and self.random.random() < 0.2:
            # What a retraction alone comes to depends on how the files lie: there must be a sum.
            kind = "-D" if (key,) in self.model.state.rows else "+I"
        row: dict[str, Any] = {"id": key}
        for field in self.model.fields[:]:
            sums = kind == "+I" or self.kind.engine == "deduplicate" or field.merge == "sum"
            if field.id != 0:
                # Of a retraction only sums are sure: others depend on what is merged first.
                row[field.name] = self._value(field) if sums else None
        return kind, row

    def _value(self, one: Field) -> Any:
        if one.id == self.model.partition:
            return self.random.choice(PARTITIONS)
        if one.id == self.model.sequence:
            return self.random.randrange(50)
        if self.random.random() < 0.15:
            return None
        number = self.random.randrange(-100, 100)
        if one.type == "BIGINT" and one.merge != "sum":
            return number * 2**34
        if one.type == "DOUBLE":
            return number / 4
        return f"s{number}" if one.type == "STRING" else number

    def _write(self) -> str:
        user = self.random.choice(self.users)
        rows = self._rows()
        batch = self._next(user)
        assert write(
            self.warehouse.options, self.identifier, user, batch, rows,
            committer=self._committer(user),
        )  # fmt: skip
        self.model.write(rows)
        return f"{len(rows)} rows, batch {batch} of user {self.users.index(user)}"

    def _next(self, user: str) -> int:
        self.batches[user] += 1
        return self.batches[user]

    def _committer(self, user: str) -> TableCommitter:
        if user not in self.committers:
            self.committers[user] = TableCommitter(self.warehouse.options, self.identifier, user)
        return self.committers[user]

    def _replay(self) -> str | None:
        """Another attempt at a batch that was committed changes nothing."""
        known = [u for u in self.users if self.table.snapshots.last_commit_of(u) is not None]
        if not known:
            return None
        user = self.random.choice(known)
        last = self.table.snapshots.last_commit_of(user)
        assert last is not None
        before = self.table.latest_snapshot_id()
        assert not write(
            self.warehouse.options, self.identifier, user, last.commit_identifier, self._rows(),
            committer=self._committer(user),
        )  # fmt: skip
        assert self.table.latest_snapshot_id() == before
        return f"batch {last.commit_identifier} of user {self.users.index(user)}"

    def _killed(self) -> str:
        """A writer dies at a step; its batch is written again, once in all."""
        user, rows = self.random.choice(self.users), self._rows()
        batch, step = self._next(user), self.random.choice(STEPS)
        after = self.random.uniform(0.0, 0.02)
        child = multiprocessing.get_context("spawn").Process(
            target=write,
            args=(dict(self.warehouse.options), self.identifier, user, batch, rows, step, after),
        )
        child.start()
        child.join(DEADLINE_S)
        assert child.exitcode == -9
        committer = TableCommitter(self.warehouse.options, self.identifier, user)
        committer.remove_leftovers(query_tag(user), batch)
        done = write(self.warehouse.options, self.identifier, user, batch, rows)
        assert done is (step in STEPS[:3]) or step == "committing"
        self.committers.pop(user, None)
        self.model.write(rows)
        return f"{len(rows)} rows, died at {step}"

    def _change_rows(self) -> str | None:
        return change_rows(self)

    def _overwrite(self) -> str:
        return overwrite(self)

    # Maintenance

    def _compact(self) -> str | None:
        if self.kind.deferred:
            return None
        return str(self.java.compact(self.identifier))

    def _full(self) -> str:
        done = self.java.compact(self.identifier, full=True)
        self.model.compacted()
        return str(done)

    def _manifests(self) -> str | None:
        if self.table.latest_snapshot_id() is None:
            return None
        self.java.compact_manifests(self.identifier)
        return "merged"

    def _killed_sidecar(self) -> str:
        """The JVM dies under a compaction, which is then made again."""
        delay = self.random.uniform(0.0, 0.4)
        killer = threading.Timer(delay, self.java.kill)
        killer.start()
        try:
            self.java.compact(self.identifier, full=True)
        except StreamhouseError:
            pass
        finally:
            killer.join()
        for _ in range(3):
            try:
                self.java.compact(self.identifier, full=True)
                break
            except StreamhouseError as error:
                last = error
        else:
            raise last
        # Sockets that py4j has lost are told of here, and in no later test.
        gc.collect()
        self.model.compacted()
        return f"after {delay:.3f} s"

    def _expire(self) -> str:
        gone = expire(self.java, self.table)
        earliest = self.table.earliest_snapshot_id() or 0
        self.states = {one: state for one, state in self.states.items() if one >= earliest}
        return f"{gone} snapshots"

    def _tag(self) -> str | None:
        latest = self.table.latest_snapshot_id()
        if latest is None:
            return None
        if self.tags and self.random.random() < 0.4:
            tag = self.random.choice(sorted(self.tags))
            self.java.call(self.identifier, lambda _, table: table.deleteTag(tag))
            del self.tags[tag]
            return f"deleted {tag}"
        tag = f"tag{len(self.log)}"
        self.java.call(self.identifier, lambda _, table: table.createTag(tag, latest))
        self.tags[tag] = self.model.snapshot()
        return f"{tag} at {latest}"

    def _branch(self) -> str | None:
        """A branch is written, main too; then main goes on as the branch, or as it is."""
        latest = self.table.latest_snapshot_id()
        if latest is None or self.table.snapshot(latest).schema_id != self.table.schema_id:
            # A branch has the columns of its snapshot; then there would be two sets of them.
            return None
        name, tag = f"b{len(self.log)}", f"for_b{len(self.log)}"
        self.java.call(self.identifier, lambda _, table: table.createTag(tag, latest))
        self.java.call(self.identifier, lambda _, table: table.createBranch(name, tag))
        aside = self.model.snapshot()
        rows = self._rows()
        full = f"{self.identifier}$branch_{name}"
        assert write(self.warehouse.options, full, str(uuid.uuid4()), 0, rows)
        assert self._ours() == self.model.rows()
        main = self._rows()
        user = self.random.choice(self.users)
        write(self.warehouse.options, self.identifier, user, self._next(user), main)
        forward = self.random.random() < 0.5
        if forward:

            def go(_: Any, table: Any) -> None:
                table.fastForward(name)

            with commit_lock(self.table.location):
                self.java.call(self.identifier, go)
            self.model.state = aside
            self.model.write(rows)
            self._went_back(latest)
        else:
            self.model.write(main)
        self.java.call(self.identifier, lambda _, table: table.deleteBranch(name))
        if tag in self.table.tags():
            self.java.call(self.identifier, lambda _, table: table.deleteTag(tag))
        self.committers.clear()
        return f"{name}, {'main goes on as it' if forward else 'left alone'}"

    def _rollback(self) -> str | None:
        table = self.table
        earliest, latest = table.earliest_snapshot_id(), table.latest_snapshot_id()
        known = [
            state for state in self.states if earliest and latest and earliest <= state < latest
        ]
        if not known:
            return None
        to = self.random.choice(known[-4:])
        with commit_lock(table.location):
            self.java.call(self.identifier, lambda _, table: table.rollbackTo(to))
        self.model.state = self.states[to]
        self._went_back(to)
        return f"from {latest} to {to}"

    def _went_back(self, to: int) -> None:
        self.states = {one: state for one, state in self.states.items() if one <= to}
        tags = self.table.tags()
        self.tags = {tag: self.tags[tag] for tag in tags if tag in self.tags}
        self.committers.clear()
        # A query that had read further cannot go on; a real one is told so (DataLossError), if it
        # looks before new snapshots have taken the place of those that it had read.
        self.consumer = Consumer(self.warehouse, self.identifier, self.model)

    # The schema

    def _alter(self) -> str | None:
        action = self.random.choice(["add", "drop", "rename", "widen", "move", "comment"])
        description: str | None = getattr(self, f"_alter_{action}")()
        return None if description is None else f"{action} {description}"

    def _free(self) -> list[Field]:
        return [field for field in self.model.fields if not field.fixed]

    def _alter_add(self) -> str | None:
        if len(self.model.fields) > 7:
            return None
        kind = self.random.choice(["INT", "BIGINT", "DOUBLE", "STRING"])
        number = self.model.next_id
        # Names come back, under other ids.
        taken = self.model.names()
        name = self.random.choice([n for n in ("v", "w", "s", "x", "y", "z", "q", "p")
                                   if n not in taken])  # fmt: skip
        at = self.random.randrange(len(taken) + 1)
        position = ColumnPosition(taken[at - 1]) if at else ColumnPosition()
        self.warehouse.alter_table(self.identifier, AddColumn(Column(name, kind), position))
        self.model.fields.insert(at, Field(number, name, kind))
        self.model.next_id += 1
        return f"{name} {kind} at {at}"

    def _alter_drop(self) -> str | None:
        free = self._free()
        if len(free) < 2:
            return None
        one = self.random.choice(free)
        self.warehouse.alter_table(self.identifier, DropColumn((one.name,)))
        self.model.fields.remove(one)
        return one.name

    def _alter_rename(self) -> str | None:
        free = [field for field in self.model.fields if field.id not in self.model.key]
        one = self.random.choice(free)
        new = self.random.choice([n for n in ("v", "w", "s", "x", "y", "z", "q", "p", "r")
                                  if n not in self.model.names()])  # fmt: skip
        self.warehouse.alter_table(self.identifier, RenameColumn((one.name,), new))
        old, one.name = one.name, new
        return f"{old} to {new}"

    def _alter_widen(self) -> str | None:
        free = [one for one in self._free() if one.type in ("INT", "BIGINT")]
        if not free:
            return None
        one = self.random.choice(free)
        plain = one.merge not in ("sum", "max")
        wider = {"INT": ["BIGINT", *(["STRING", "DOUBLE"] if plain else [])],
                 "BIGINT": ["STRING"] if plain else []}[one.type]  # fmt: skip
        if not wider:
            return None
        kind = self.random.choice(wider)
        self.warehouse.alter_table(self.identifier, SetType((one.name,), kind))
        one.type = kind
        return f"{one.name} to {kind}"

    def _alter_move(self) -> str:
        one = self.random.choice(self.model.fields)
        self.warehouse.alter_table(self.identifier, MoveColumn(one.name, ColumnPosition()))
        self.model.fields.remove(one)
        self.model.fields.insert(0, one)
        return one.name

    def _alter_comment(self) -> str:
        one = self.random.choice(self.model.fields)
        change = SetColumnComment((one.name,), f"step {len(self.log)}")
        self.warehouse.alter_table(self.identifier, change)
        return one.name


def _model(kind: Kind) -> Model:
    base = [Field(i, name, type_) for i, (name, type_) in enumerate(_BASE)]
    base[0].fixed = True
    if kind.engine == "aggregation":
        base[1].merge, base[2].merge = "sum", "max"
    if kind.partition is not None:
        base.append(Field(len(base), kind.partition, "STRING", fixed=True, constant=PARTITIONS[0]))
    ids = {one.name: one.id for one in base}
    for name in (kind.sequence,) if kind.sequence else ():
        base[ids[name]].fixed, base[ids[name]].constant = True, 49
    partition = None if kind.partition is None else ids[kind.partition]
    sequence = None if kind.sequence is None else ids[kind.sequence]
    return Model(kind.engine, base, kind.deferred, partition, sequence)
