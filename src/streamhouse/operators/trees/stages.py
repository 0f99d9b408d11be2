"""Cuts a tree into stages that tasks compute by partitions, with exchanges of rows between them.

Operators state which rows affect each other (`Operator.partitions`): rows with equal values of some
expressions. A hash of these values, as one type for both sides of a join, brings them into one
partition, where they stay until an operator above asks for others. Where nothing divides the rows,
as in a global aggregate, the first partition has all. Stages compute all rows (`whole`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamhouse.duckdb_engine import BATCH_ROWS
from streamhouse.operators.aggregate import Aggregate
from streamhouse.operators.join import Join, JoinKind
from streamhouse.operators.operator import INPUT, Linear, Operator, Unary, column, walk, whole_sql
from streamhouse.operators.planning.pruning import with_inputs
from streamhouse.operators.project import Item, Project
from streamhouse.operators.query_block import QueryBlock
from streamhouse.operators.scan import Scan
from streamhouse.operators.set_operation import SetKind, SetOperation
from streamhouse.operators.sink import Sink
from streamhouse.operators.trees.arrangement import Arrangement, hash_of, kinds_of
from streamhouse.operators.trees.drawing import described
from streamhouse.sql.expressions.binder import quote
from streamhouse.state.segment import COUNT, HASH

_AS_TEXT = re.compile(r"(TINY|SMALL|BIG)?INT(EGER)?|DECIMAL.*|VARCHAR|BOOLEAN|DATE|TIMESTAMP.*")
"""The types whose values are equal if their texts are, which a hidden key is a hash of."""


@dataclass(frozen=True)
class Part:
    """A value whose hash, as one of type `kind`, divides rows: that of each of some columns, which
    are quoted, or SQL expressions."""

    names: frozenset[str]
    kind: str


Partitioning: TypeAlias = tuple[Part, ...] | None
"""Rows with equal values are in one partition. Empty: all are in the first; None: nothing known."""
_Placed: TypeAlias = tuple[Operator, Partitioning]


@dataclass(frozen=True)
class Stage(Unary):
    """Operators up to `input`, which a task computes for one partition, as one that others read.

    Its rows are divided by `by`, as values of `kinds`, or they are all in the first partition, or
    in each (`to_all`). `single`: only the first partition computes rows. The last stage has the
    result, which no other one reads.
    """

    number: int
    single: bool
    by: tuple[str, ...] = ()
    alias: str = INPUT
    kinds: tuple[str, ...] = ()
    to_all: bool = False

    @property
    def inputs(self) -> tuple[Operator, ...]:
        return ()

    @cached_property
    def types(self) -> dict[str, str]:
        return self.input.types

    @property
    def relation(self) -> str:
        """The relation of the rows that a partition has received."""
        return f"_stage{self.number}"

    @cached_property
    def received(self) -> list[Stage]:
        """The stages whose rows it reads."""
        return [each for each in walk(self.input) if isinstance(each, Stage)]

    @cached_property
    def relations(self) -> frozenset[str]:
        """The relations of the tables that it reads."""
        return frozenset(each.relation for each in walk(self.input) if isinstance(each, Scan))

    @cached_property
    def _stored(self) -> Arrangement:
        return Arrangement(self.input, self.by, self.alias, self.kinds)

    @property
    def computed(self) -> str:
        """The SQL of the rows of a partition, over the relations that it reads."""
        return whole_sql(self.input)

    def whole(self, inputs: Sequence[str]) -> str:
        return self._stored.unpacked(self.relation)

    def sent(
        self, connection: duckdb.DuckDBPyConnection, count: int
    ) -> Iterator[tuple[int, pa.Table]]:
        """The rows of a partition, in blocks, with the one of `count` partitions that gets each.

        Each gets at least one. If one thread computes them, they are the same each time.
        """
        rows = self._stored.stored(f"({self.computed})", "1")
        reader = connection.sql(rows).to_arrow_reader(BATCH_ROWS)
        for batch in reader:
            block = pa.Table.from_batches([batch.drop_columns([COUNT, HASH])])
            partitions = pa.array(batch.column(HASH).to_numpy() % np.uint64(count))
            for partition in range(count):
                own = block if self.to_all else block.filter(pc.equal(partitions, partition))
                if own.num_rows:
                    yield partition, own
        empty = reader.schema.empty_table().drop_columns([COUNT, HASH])
        yield from ((partition, empty) for partition in range(count))

    def describe(self) -> str:
        names = ", ".join(column(sql) or "an expression" for sql in self.by)
        by = names or ("all tasks" if self.to_all else "one task")
        return f"{described(self.input)} {'by' if self.by else 'to'} {by}"


class StagedTree:
    """The stages of a tree, each after those whose rows it reads, with a level each.

    Stages of one level run together, after those of lower levels.
    """

    def __init__(self, root: Operator) -> None:
        self._placed: dict[int, _Placed] = {}
        self._made: dict[tuple[object, ...], Stage] = {}
        self._kept_by: list[tuple[str, str]] = []
        """How the kept rows of a sink are divided: expressions, with the types of values."""
        top, parts = self._sink(root) if isinstance(root, Sink) else self._place(root)
        self.result = Stage(top, len(self._made), parts == ())
        self.stages = [*self._made.values(), self.result]
        self._levels = self._latest()

    @property
    def last(self) -> int:
        """The level of the result."""
        return self._levels[-1]

    @property
    def is_parallel(self) -> bool:
        """Whether several tasks do more than read the tables."""
        return any(
            not each.single and (each.received or each is self.result) for each in self.stages
        )

    def of_level(self, level: int) -> list[Stage]:
        """The stages of a level."""
        return [each for each in self.stages if self._levels[each.number] == level]

    def read_after(self, level: int) -> set[int]:
        """The numbers of the stages whose rows later levels read."""
        later = (each for each in self.stages if self._levels[each.number] > level)
        return {read.number for each in later for read in each.received}

    def kept(self, relation: str, partition: int, count: int) -> str:
        """The SQL of the kept rows of a sink that are in a partition."""
        hashed = hash_of(*([pair[n] for pair in self._kept_by] for n in (0, 1)))
        return f"SELECT * FROM {relation} AS {INPUT} WHERE {hashed} % {count} = {partition}"

    def _latest(self) -> list[int]:
        """The level of each stage: as late as its readers allow, so that few rows wait."""
        levels: list[int] = []
        for stage in self.stages:
            levels.append(1 + max((levels[each.number] for each in stage.received), default=-1))
        latest = [levels[-1]] * len(levels)
        for stage in reversed(self.stages):
            for each in stage.received:
                latest[each.number] = min(latest[each.number], latest[stage.number] - 1)
        return latest

    def _sink(self, sink: Sink) -> _Placed:
        """The sink, with all rows of a key in one partition."""
        rows, parts = self._place(sink.input)
        if sink.key:
            hashed = sink.input.columns if sink.numbered else sink.hashed
            names = [name for name in hashed or () if _AS_TEXT.fullmatch(rows.types[name])]
            names = [*sink.key] if hashed is None else names
            by = tuple(f"{INPUT}.{quote(name)}" for name in names)
            ((rows, parts),) = self._divided([(rows, parts)], [by], [INPUT])
            for part in parts or ():
                name = min(part.names.intersection(map(quote, names)))
                self._kept_by.append((f"{INPUT}.{name}", part.kind))
        return replace(sink, input=rows), parts

    def _place(self, operator: Operator) -> _Placed:
        """The operator over the rows of a partition, and how its result is divided."""
        if id(operator) not in self._placed:
            self._placed[id(operator)] = self._placing(operator)
        return self._placed[id(operator)]

    def _placing(self, operator: Operator) -> _Placed:
        if isinstance(operator, Aggregate):
            # Its other inputs are for changes.
            operator = replace(operator, steps=(), values=())
        placed = [self._place(each) for each in operator.inputs]
        own, read = [parts for _, parts in placed], list(placed)
        match operator:
            case Scan():
                return operator, None
            case SetOperation(kind=SetKind.UNION, all=True) if any(parts != () for parts in own):
                # Stages with rows in all partitions receive what is in one.
                read = [self._sent(each) if each[1] == () else each for each in placed]
                own = [None, None]
            case Join() if (one := _single(operator, own)) is not None:
                read[one] = self._sent(placed[one], to_all=True)
                own = [own[1 - one]]
            case Linear():
                pass
            case _:
                by = () if operator.ordered else operator.partitions or ()
                read = self._divided(placed, by, operator.aliases)
                own = [parts for _, parts in read]
        return with_inputs(operator, (rows for rows, _ in read)), _result(operator, own)

    def _divided(
        self, placed: list[_Placed], by: Sequence[tuple[str, ...]], aliases: Sequence[str]
    ) -> list[_Placed]:
        """Inputs that are divided alike, by some of the expressions of each; else all in one."""
        if all(parts == () for _, parts in placed):
            return placed
        sides = zip(placed, by, aliases, strict=False)
        kinds = [kinds_of(rows, sqls, alias) for (rows, _), sqls, alias in sides]
        # As values of two types equal values may differ.
        alike = [n for n, pair in enumerate(zip(*kinds, strict=True)) if len({*pair}) == 1]
        if not alike:
            return [each if each[1] == () else self._sent(each) for each in placed]
        by = [tuple(sqls[n] for n in alike) for sqls in by]
        known = [_places(parts, side, by) for side, (_, parts) in enumerate(placed)]
        every = [(n, kinds[0][number]) for n, number in enumerate(alike)]
        chosen = next((places for places in known if places), every)
        return [
            each
            if places == chosen
            else self._sent(each, [(sqls[n], kind) for n, kind in chosen], alias)
            for each, places, sqls, alias in zip(placed, known, by, aliases, strict=False)
        ]

    def _sent(
        self,
        placed: _Placed,
        by: Sequence[tuple[str, str]] = (),
        alias: str = INPUT,
        to_all: bool = False,
    ) -> _Placed:
        """The rows divided by expressions, each as a value of a type; without any, all in one."""
        rows, parts = placed
        sqls, kinds = tuple(sql for sql, _ in by), tuple(kind for _, kind in by)
        name = id(rows), sqls, kinds, alias, to_all
        if name not in self._made:
            number, single = len(self._made), parts == ()
            self._made[name] = Stage(rows, number, single, sqls, alias, kinds, to_all)
        divided = tuple(Part(frozenset([_name(sql)]), kind) for sql, kind in by)
        return self._made[name], None if to_all else divided


def _places(
    parts: Partitioning, side: int, by: Sequence[Sequence[str]]
) -> list[tuple[int, str]] | None:
    """By which expressions of a side its rows are divided, each with a type; None: by others.

    Of two sides, these are columns of one type, so any function of them is alike.
    """
    names = [
        _name(sqls[side]) if len(sqls) == 1 or all(map(column, sqls)) else ""
        for sqls in zip(*by, strict=True)
    ]
    found = []
    for part in parts or ():
        place = next((n for n, name in enumerate(names) if name in part.names), None)
        if place is None:
            return None
        found.append((place, part.kind))
    return found or None


def _single(join: Join, own: Sequence[Partitioning]) -> int | None:
    """The input that has one row at most, which each partition of the other one gets."""
    sides = {JoinKind.FULL: (), JoinKind.INNER: (1, 0)}.get(join.kind, (1,))
    return next((n for n in sides if join.inputs[n].has_key(()) and own[1 - n] != ()), None)


def _result(operator: Operator, own: Sequence[Partitioning]) -> Partitioning:
    """How the result of an operator is divided, if its inputs are."""
    items, parts = [Item.of(name) for name in operator.columns], own[0] if own else ()
    match operator:
        case _ if all(parts == () for parts in own):
            return ()
        case Project():
            items = list(operator.items)
        case Aggregate():
            items = list(operator.by)
        case Join(kind=JoinKind.INNER) if len(own) == 2:
            both = zip(own[0] or (), own[1] or (), strict=True)
            parts = tuple(Part(left.names | right.names, left.kind) for left, right in both)
        case Join(kind=JoinKind.FULL) | SetOperation() | QueryBlock():
            return None
    if not parts:
        return None
    # An item may be its column as another integer or time, which a cast takes back.
    pairs = [(item, quote(item.name)) for item in items]
    named = [(old, new) for item, new in pairs for old in (_name(item.sql), quote(item.column))]
    found = [
        Part(frozenset(new for old, new in named if old in part.names), part.kind) for part in parts
    ]
    return tuple(found) if all(part.names for part in found) else None


def _name(sql: str) -> str:
    name = column(sql)
    return quote(name) if name else sql
