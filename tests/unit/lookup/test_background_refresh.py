"""A batch joins exactly the version in its offset, preloaded or not."""

from __future__ import annotations

import pathlib
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import wait
from typing import Any

import pyarrow as pa
import pytest
from tests.unit.lookup.conftest import Join, Lab, plan, source, specs_of
from tests.waiting import DEADLINE_S

from streamhouse.errors import DataLossError
from streamhouse.lookup.options import ASYNC
from streamhouse.lookup.storage.bucket_key import BucketKey, bucket_key
from streamhouse.lookup.storage.key_location import GroupReader
from streamhouse.lookup.strategies import full
from streamhouse.lookup.strategies.background_refresh import DoubleBufferedDimension
from streamhouse.lookup.strategies.full import FullDimension
from streamhouse.lookup.strategies.selection import Choice
from streamhouse.lookup.strategies.table_dimension import TableDimension
from streamhouse.paimon.read.table import Table
from streamhouse.runtime.query_operator import QueryOperator
from streamhouse.runtime.streaming.dimensions.open_dimensions import Dimensions
from streamhouse.source import Offset
from streamhouse.sql.plan import Column
from streamhouse.types import arrow_type

COLUMNS = [Column("k", "INT", False), Column("item", "STRING", False), Column("price", "INT")]
TEXT = (
    "SELECT o.n, p.price FROM orders AS o JOIN prices FOR SYSTEM_TIME AS OF PROCTIME() AS p "
    "ON o.k = p.k AND o.item = p.item"
)
KEYS = range(20)
BUCKETS = 3
WHOLE = ["full", "bucket"]


class Prices:
    """A dimension in which all prices are the snapshot's number."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.table = lab.make("prices", COLUMNS, ("k", "item"), (), {"bucket": str(BUCKETS)})

    def write(self, keys: Sequence[int] = KEYS) -> int:
        number = (self.table.latest_snapshot_id() or 0) + 1
        return self.lab.write(self.table, [(k, "tea", number) for k in keys])

    def process(self, strategy: str, **options: str) -> Join:
        """A process that joins."""
        query = plan(self.lab, TEXT)
        schema = pa.schema([pa.field(c.name, arrow_type(c.type)) for c in query.rows.columns])
        choice = Choice(strategy, "the test says so", BUCKETS)
        dimensions = Dimensions(specs_of(self.lab, query, options), [choice])
        return Join(query, dimensions, QueryOperator(query, schema, None))

    def of_task(self, task: int) -> list[int]:
        """The keys of one task of two."""
        (spec,) = specs_of(self.lab, plan(self.lab, TEXT))
        key = bucket_key(spec, self.table)
        assert isinstance(key, BucketKey)
        columns = {"k": pa.array(KEYS, pa.int32()), "item": pa.array(["tea"] * len(KEYS))}
        whose = key.tasks(pa.table(columns), 2)
        return [k for k in KEYS if whose[k] == task]


@pytest.fixture
def prices(lab: Lab) -> Prices:
    return Prices(lab)


class Gate:
    """Holds what the threads of `DoubleBufferedDimension` do until it is opened."""

    def __init__(self, read: Callable[..., Any]) -> None:
        self._read = read
        self._open = threading.Event()
        self.in_vain = False

    def open(self) -> None:
        self._open.set()

    def wait(self) -> None:
        """In such a thread, wait until it is opened."""
        if threading.current_thread().name.startswith("streamhouse-lookup"):
            self.in_vain |= not self._open.wait(DEADLINE_S)

    def read(self, table: Table, *given: Any, **named: Any) -> Iterator[pa.RecordBatch]:
        self.wait()
        found: Iterator[pa.RecordBatch] = self._read(table, *given, **named)
        return found


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    made = Gate(Table.read)
    monkeypatch.setattr(Table, "read", lambda *given, **named: made.read(*given, **named))
    yield made
    made.open()
    assert not made.in_vain


def offset(snapshot: int, next_version: int | None = None) -> Offset:
    found: dict[str, Any] = {"dims": {"dim_0": snapshot}}
    return (
        found
        if next_version is None
        else {**found, "coming": {"dim_0": {"snapshot": next_version}}}
    )


def joined(join: Join, end: Offset, keys: Sequence[int] = KEYS) -> list[int]:
    """The price of each key, in a batch."""
    src = source(join.query, [(k, k, "tea", "") for k in keys])
    join.operator.bind(0)
    join.dimensions.at(end)
    join.dimensions.bind(join.operator, src)
    found = {row["n"]: row["price"] for row in join.operator.rows(src).to_pylist()}
    assert list(keys) == sorted(found)
    return [found[k] for k in keys]


def held(join: Join) -> DoubleBufferedDimension:
    return join.dimensions._held["dim_0"]


def current(join: Join) -> TableDimension:
    return held(join).current


def loaded(join: Join) -> None:
    """Wait for the end of the load."""
    heir = held(join)._successor
    assert heir is not None
    wait([heir.load], DEADLINE_S)
    assert heir.load.done()


def unread(*given: Any) -> None:
    raise AssertionError("the table is read anew")


@pytest.mark.parametrize("strategy", WHOLE)
def test_a_preloaded_version_is_joined_from_the_batch_that_selects_it(
    prices: Prices, strategy: str
) -> None:
    one, two = prices.write(), prices.write()
    join = prices.process(strategy)
    assert joined(join, offset(one, two)) == [one] * 20
    before = current(join)
    loaded(join)
    assert join.dimensions.loaded(offset(one, two)) == ["dim_0"]
    assert join.dimensions.loaded(offset(one, 7)) == join.dimensions.loaded(offset(one)) == []
    # The next batch, or the same again, joins what its offset says.
    assert joined(join, offset(one, two)) == [one] * 20 and current(join) is before
    assert joined(join, offset(two)) == [two] * 20 and current(join) is not before
    assert joined(join, offset(one)) == [one] * 20
    join.dimensions.close()


@pytest.mark.parametrize("strategy", WHOLE)
def test_batches_go_on_until_it_is_loaded(prices: Prices, strategy: str, gate: Gate) -> None:
    one, two = prices.write(), prices.write()
    join = prices.process(strategy)
    for _ in range(2):
        assert joined(join, offset(one, two)) == [one] * 20
        assert join.dimensions.loaded(offset(one, two)) == []
    # A batch that joins it in a process that is not that far waits.
    opener = threading.Timer(0.05, gate.open)
    opener.start()
    assert joined(join, offset(two)) == [two] * 20
    opener.join(DEADLINE_S)
    join.dimensions.close()


@pytest.mark.parametrize("strategy", [*WHOLE, "partial"])
def test_a_process_without_a_preload_joins_the_same(prices: Prices, strategy: str) -> None:
    one, two = prices.write(), prices.write()
    join = prices.process(strategy)
    assert joined(join, offset(two)) == [two] * 20
    assert joined(join, offset(one)) == [one] * 20
    join.dimensions.close()


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_process_may_serve_any_task(prices: Prices, order: tuple[int, int]) -> None:
    one, two = prices.write(), prices.write()
    join = prices.process("bucket")

    def batch(task: int, end: Offset) -> list[int]:
        join.dimensions.take(task, 2)
        return joined(join, end, prices.of_task(task))

    for task in order:
        assert prices.of_task(task)
        assert batch(task, offset(one)) == [one] * len(prices.of_task(task))
    batch(order[0], offset(one, two))
    loaded(join)
    for task in order:
        assert batch(task, offset(two)) == [two] * len(prices.of_task(task))
    join.dimensions.close()


@pytest.mark.parametrize("strategy", WHOLE)
def test_few_changes_after_it_are_taken_in(
    prices: Prices, strategy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = prices.write(), prices.write()
    join = prices.process(strategy)
    joined(join, offset(one, two))
    loaded(join)
    three = prices.write([5])
    monkeypatch.setattr(GroupReader, "rows_of_group", unread)
    assert joined(join, offset(three)) == [three if k == 5 else two for k in KEYS]
    join.dimensions.close()


@pytest.mark.parametrize("strategy", WHOLE)
def test_an_unused_preload_is_closed(prices: Prices, strategy: str) -> None:
    one, two = prices.write(), prices.write()
    join = prices.process(strategy)
    joined(join, offset(one, two))
    loaded(join)
    assert joined(join, offset(one)) == [one] * 20
    assert held(join)._successor is None
    join.dimensions.close()


def test_one_is_loaded_at_a_time(prices: Prices, gate: Gate) -> None:
    one, two, three = (prices.write() for _ in range(3))
    join = prices.process("full")
    joined(join, offset(one, two))
    first = held(join)._successor
    joined(join, offset(one, three))
    assert held(join)._successor is first is not None
    gate.open()
    loaded(join)
    joined(join, offset(one, three))
    assert join.dimensions.loaded(offset(one, two)) == []
    loaded(join)
    assert join.dimensions.loaded(offset(one, three)) == ["dim_0"]
    join.dimensions.close()


@pytest.mark.parametrize("strategy", WHOLE)
def test_what_cannot_be_loaded_fails_the_batch_that_joins_it(prices: Prices, strategy: str) -> None:
    one = prices.write()
    join = prices.process(strategy)
    assert joined(join, offset(one, 99)) == [one] * 20
    loaded(join)
    assert join.dimensions.loaded(offset(one, 99)) == ["dim_0"]
    with pytest.raises(DataLossError, match="snapshot 99"):
        joined(join, offset(99))
    assert joined(join, offset(one)) == [one] * 20
    join.dimensions.close()


def test_by_key_there_is_nothing_to_load(prices: Prices) -> None:
    one, two = prices.write(), prices.write()
    join = prices.process("partial")
    assert joined(join, offset(one, two)) == [one] * 20
    assert held(join)._successor is None
    assert join.dimensions.loaded(offset(one, two)) == ["dim_0"]
    join.dimensions.close()


@pytest.mark.parametrize("strategy", WHOLE)
def test_a_snapshot_that_was_rolled_back_is_not_its_successor(
    prices: Prices, strategy: str
) -> None:
    one, two = prices.write(), prices.write()
    join = prices.process(strategy)
    assert joined(join, offset(one, two)) == [one] * 20
    loaded(join)
    again = rolled_back(prices, two, [3])
    assert again == two
    assert joined(join, offset(two)) == [two if k == 3 else one for k in KEYS]
    again = rolled_back(prices, two, [4])
    assert joined(join, offset(two)) == [two if k == 4 else one for k in KEYS]
    join.dimensions.close()


def rolled_back(prices: Prices, snapshot: int, keys: Sequence[int]) -> int:
    """Another snapshot of the same number."""
    table = prices.table
    root = table.root.removeprefix("file://")
    for name in (f"snapshot-{snapshot}", "LATEST"):
        (pathlib.Path(root) / "snapshot" / name).unlink()
    return prices.write(keys)


def test_a_cache_with_many_changes_is_merged_early(
    prices: Prices, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(full, "MOST_CHANGES", 10)
    merge, merged = FullDimension.merge, list[FullDimension]()

    def wait_and_merge(self: FullDimension) -> None:
        gate.wait()
        merge(self)
        merged.append(self)

    monkeypatch.setattr(FullDimension, "merge", wait_and_merge)
    one, two = prices.write(), prices.write(range(6))
    three = prices.write(range(6, 12))
    plain, early = prices.process("full"), prices.process("full", **{ASYNC: "true"})
    for join in (plain, early):
        joined(join, offset(one))
    for join in (plain, early):
        assert held(join)._successor is None
        assert joined(join, offset(two)) == [two] * 6 + [one] * 14
    assert held(plain)._successor is None
    # No batch waits for it.
    before = current(early)
    assert joined(early, offset(two)) == [two] * 6 + [one] * 14 and current(early) is before
    gate.open()
    loaded(early)
    monkeypatch.setattr(GroupReader, "rows_of_group", unread)
    for join in (early, plain):
        assert joined(join, offset(three)) == [two] * 6 + [three] * 6 + [one] * 8
    assert current(early) is not before
    assert merged[0] is current(early) and current(plain) in merged
    for join in (plain, early):
        join.dimensions.close()
