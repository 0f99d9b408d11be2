"""Bucket shuffle: rows and keys meet in the same task; unchanged buckets stay cached."""

from __future__ import annotations

import datetime
import decimal
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from streamhouse.errors import OptionError
from streamhouse.lookup.dimension import DimensionSpec
from streamhouse.lookup.options import CacheOptions
from streamhouse.lookup.storage.bucket_key import BucketKey, bucket_key
from streamhouse.lookup.storage.key_location import GroupReader
from streamhouse.lookup.strategies import full
from streamhouse.lookup.strategies.full import FullDimension
from streamhouse.lookup.strategies.selection import choose, choose_all
from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.write.commit import TableCommitter
from streamhouse.paimon.write.table_writer import TableWriter
from streamhouse.sql.plan import Column, LookupJoin, TableInfo
from streamhouse.sql.statements.script import parse_script

COLUMNS = (
    Column("region", "INT", False),
    Column("id", "BIGINT", False),
    Column("name", "STRING"),
)
KEY = ("region", "id")
BUCKETS = 7


class People:
    """A dimension of several buckets; every write is a snapshot."""

    def __init__(self, folder: Path, **options: str) -> None:
        self.options = {"warehouse": str(folder)}
        warehouse = Warehouse(self.options)
        warehouse.create_database("d", if_not_exists=True)
        given = {"bucket": str(BUCKETS), "bucket-key": "id", **options}
        if given["bucket"] == "-1":
            del given["bucket-key"]
        warehouse.create_table("d", "people", COLUMNS, KEY, (), given)
        self.table = warehouse.table("d.people")
        self.commits = 0

    def spec(self, **changes: object) -> DimensionSpec:
        given = {"key_columns": KEY, "keys_sql": "SELECT 1", "row_keys_sql": "SELECT 1", **changes}
        info = TableInfo(("c", "d", "people"), COLUMNS, primary_key=KEY)
        lookup = LookupJoin(info, "dim_0", ("id", "name"), KEY, False, **given)  # type: ignore[arg-type]
        return DimensionSpec(lookup, TableAddress(self.options, "d.people"))

    def write(self, *ids: int, name: str = "x") -> None:
        rows = [{"region": i % 3, "id": i, "name": f"{name}{i}"} for i in ids]
        writer = TableWriter(self.options, "d.people", "test")
        writer.write(pa.RecordBatch.from_pylist(rows, schema=self.table.arrow_schema))
        messages = writer.prepare(self.commits)
        writer.close()
        TableCommitter(self.options, "d.people", "test").commit(self.commits, messages)
        self.commits += 1


@pytest.fixture
def people(tmp_path: Path) -> People:
    found = People(tmp_path)
    found.write(*range(200))
    return found


def key_of(people: People) -> BucketKey:
    found = bucket_key(people.spec(), people.table)
    assert isinstance(found, BucketKey)
    return found


@pytest.mark.parametrize("count", [1, 2, 3])
def test_each_row_is_in_the_task_of_its_key_and_in_no_other(people: People, count: int) -> None:
    dimension = FullDimension(people.spec(), CacheOptions(), BUCKETS)
    dimension.at(1)
    ids = np.arange(200)
    task = key_of(people).tasks(pa.table({"region": pa.nulls(200), "id": ids}), count)
    for part in range(count):
        dimension.take(part, count)
        rows = dimension.rows(None)
        assert rows.column_names == ["id", "name"]
        assert sorted(rows["id"].to_pylist()) == ids[task == part].tolist()


def test_a_key_with_a_null_has_no_task(people: People) -> None:
    keys = pa.table({"id": pa.chunked_array([pa.array([1, None, 3, None], pa.int64())])})
    assert (key_of(people).tasks(keys, 2) < 0).tolist() == [False, True, False, True]
    assert key_of(people).tasks(keys.slice(0, 0), 2).tolist() == []


@pytest.mark.parametrize("key", [(), ("name", "at", "sum", "raw")])
def test_keys_of_any_type_are_in_the_task_of_their_rows(
    tmp_path: Path, key: tuple[str, ...]
) -> None:
    kinds = {"name": "STRING", "at": "TIMESTAMP(3)", "sum": "DECIMAL(20, 2)", "raw": "BYTES"}
    columns = [Column(name, kind, False) for name, kind in kinds.items()]
    warehouse = Warehouse(str(tmp_path))
    warehouse.create_database("d")
    options = {"bucket": "4", "bucket-key": "name,sum,at"}
    warehouse.create_table("d", "t", columns, key, options=options)
    table = warehouse.table("d.t")
    values: dict[str, list[Any]] = {
        "name": ["", "seven b", "eight by", "ä" * 50] * 10,
        "at": [datetime.datetime(2026, 1, 1, microsecond=1000 * n) for n in range(40)],
        "sum": [decimal.Decimal(n - 20) for n in range(40)],
        "raw": [b"x"] * 40,
    }
    writer = TableWriter(warehouse.options, "d.t", "test")
    writer.write(pa.record_batch(values, schema=table.arrow_schema))
    TableCommitter(warehouse.options, "d.t", "test").commit(0, writer.prepare(0))
    writer.close()

    info = TableInfo(("c", "d", "t"), tuple(columns), primary_key=key)
    names = tuple(kinds)
    lookup = LookupJoin(
        info, "dim_0", names, names, False, key_columns=names, row_keys_sql="SELECT 1"
    )
    spec = DimensionSpec(lookup, TableAddress(warehouse.options, "d.t"))
    found = bucket_key(spec, table)
    assert isinstance(found, BucketKey)
    dimension = FullDimension(spec, CacheOptions(), 4)
    dimension.at(1)
    # As DuckDB gives them: points in time by the microsecond, some between two of the table's.
    keys = pa.table({**values, "at": pa.array(values["at"], pa.timestamp("us"))})
    task = found.tasks(keys, 3)
    for part in range(3):
        dimension.take(part, 3)
        rows = sorted(row["sum"] for row in dimension.rows(None).to_pylist())
        assert rows == [values["sum"][n] for n in np.flatnonzero(task == part)] != []
    between = [at.replace(microsecond=1) for at in values["at"]]
    assert (found.tasks(keys.set_column(1, "at", pa.array(between)), 3) >= 0).all()


@pytest.mark.parametrize("memory", [1, 1 << 20])
def test_only_changed_buckets_are_read_again(people: People, memory: int) -> None:
    dimension = FullDimension(people.spec(), CacheOptions(memory=memory), BUCKETS)
    dimension.take(0, 2)
    dimension.at(1)
    before = dimension.rows(None)
    other = key_of(people).tasks(pa.table({"id": [5, 6, 8, 9, 10]}), 2)
    mine, theirs = [
        [5, 6, 8, 9, 10][place] for place in (list(other).index(0), list(other).index(1))
    ]
    people.write(theirs, name="new")
    dimension.at(2)
    assert dimension.rows(None) is before
    people.write(mine, name="new")
    dimension.at(3)
    after = dict(zip(*(dimension.rows(None)[n].to_pylist() for n in ("id", "name")), strict=True))
    assert after[mine] == f"new{mine}" and len(after) == before.num_rows
    # An earlier batch that runs again joins what it joined.
    dimension.at(1)
    assert sorted(dimension.rows(None)["name"].to_pylist()) == sorted(before["name"].to_pylist())
    dimension.at(None)
    assert dimension.rows(None).num_rows == 0


@pytest.mark.parametrize("seed", range(4))
def test_any_task_joins_any_version(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever a process has held before, rows are those of the snapshot, each once."""
    monkeypatch.setattr(full, "MOST_CHANGES", 12)
    people, dice = People(tmp_path), random.Random(seed)
    people.write(*range(100))
    options = CacheOptions(memory=dice.choice([1, 2_000, 1 << 20]))
    dimension, count = FullDimension(people.spec(), options, BUCKETS), dice.choice([2, 3])
    task = 0
    for step in range(25):
        if dice.random() < 0.6:
            people.write(*dice.sample(range(130), dice.choice([1, 4, 30])), name=f"at{step}-")
        latest = people.table.latest_snapshot_id() or 0
        for action in dice.sample([0, 1], 2):
            if action:
                task = dice.randrange(count)
                dimension.take(task, count)
            else:
                snapshot = dice.choice([latest, latest, latest, dice.randint(1, latest)])
                dimension.at(snapshot)
        wanted = pa.Table.from_batches(people.table.read(["id", "name"], snapshot=snapshot))
        found = [
            sorted((row["id"], row["name"]) for row in rows.filter(pa.array(own)).to_pylist())
            for rows in (wanted, dimension.rows(None))
            for own in [key_of(people).tasks(rows, count) == task]
        ]
        assert found[0] == found[1], (seed, step)
    dimension.close()


def test_other_numbers_of_buckets_are_held_by_each_task(people: People) -> None:
    """A partition keeps the buckets with which it was written."""
    dimension = FullDimension(people.spec(), CacheOptions(), BUCKETS + 1)
    dimension.take(0, 2)
    dimension.at(1)
    assert sorted(dimension.rows(None)["id"].to_pylist()) == list(range(200))
    people.write(7, name="new")
    dimension.at(2)
    dimension.take(1, 2)
    rows = dict(zip(*(dimension.rows(None)[n].to_pylist() for n in ("id", "name")), strict=True))
    assert rows[7] == "new7" and len(rows) == 200


def test_buckets_that_could_not_be_read_are_read_again(
    people: People, monkeypatch: pytest.MonkeyPatch
) -> None:
    dimension = FullDimension(people.spec(), CacheOptions(), BUCKETS)
    dimension.take(0, 2)
    dimension.at(1)
    with monkeypatch.context() as patched:
        patched.setattr(GroupReader, "rows_of_group", lambda *_: iter([None]))
        with pytest.raises(AttributeError):
            dimension.take(1, 2)
    dimension.at(1)
    one = dimension.rows(None)["id"].to_pylist()
    dimension.take(0, 2)
    assert sorted([*one, *dimension.rows(None)["id"].to_pylist()]) == list(range(200))


def test_a_task_that_comes_later_has_the_changes(people: People) -> None:
    dimension = FullDimension(people.spec(), CacheOptions(), BUCKETS)
    dimension.take(0, 2)
    dimension.at(1)
    people.write(*range(50), name="new")
    dimension.at(2)
    found: dict[int, str] = {}
    for task in (1, 0):
        dimension.take(task, 2)
        names = (dimension.rows(None)[name].to_pylist() for name in ("id", "name"))
        found |= dict(zip(*names, strict=True))
    assert found == {n: f"{'new' if n < 50 else 'x'}{n}" for n in range(200)}


@pytest.mark.parametrize(
    ("options", "changes", "why"),
    [
        ({"bucket": "1"}, {}, "no fixed number of buckets above 1"),
        ({"bucket": "-1"}, {}, "no fixed number of buckets above 1"),
        ({"bucket-function.type": "mod"}, {}, "has the bucket function 'mod'"),
        ({}, {"key_columns": ("region",)}, "ON does not compare id of the bucket key"),
        ({}, {"row_keys_sql": None}, "its keys come from another lookup"),
    ],
)
def test_why_a_table_cannot_be_shuffled(
    tmp_path: Path, options: dict[str, str], changes: dict[str, object], why: str
) -> None:
    people = People(tmp_path, **options)
    with pytest.raises(OptionError, match=f"strategy 'bucket' cannot be used .*{why}"):
        choose(people.spec(strategy="bucket", **changes))
    choice = choose(people.spec(strategy="shuffle", **changes))
    assert choice.strategy == "full" and why in choice.reason


def test_one_lookup_of_a_query_is_shuffled(people: People) -> None:
    plain, shuffle, bucket = (people.spec(strategy=s) for s in (None, "shuffle", "bucket"))
    found = choose_all([plain, shuffle, bucket, shuffle])
    assert [item.strategy for item in found] == ["full", "full", "bucket", "full"]
    assert choose_all([shuffle, shuffle])[0].buckets == BUCKETS
    with pytest.raises(OptionError, match="another lookup of the query is"):
        choose_all([bucket, bucket])
    with pytest.raises(OptionError, match="because I say so"):
        choose_all([bucket], "because I say so")


@pytest.mark.parametrize("kind", ["BIGINT", "STRING", "DOUBLE"])
def test_rows_are_not_shuffled_by_a_key_whose_type_has_changed(tmp_path: Path, kind: str) -> None:
    """The buckets of older rows are those of the values in their former type."""
    warehouse = Warehouse({"warehouse": str(tmp_path)})
    warehouse.create_database("d")
    columns = (Column("id", "INT"), Column("name", "STRING"))
    given = {"bucket": "3", "bucket-key": "id"}
    warehouse.create_table("d", "people", columns, (), (), given)
    info = TableInfo(("c", "d", "people"), columns)
    lookup = LookupJoin(
        info, "dim_0", ("id", "name"), ("id",), False, key_columns=("id",), row_keys_sql="SELECT 1"
    )
    spec = DimensionSpec(lookup, TableAddress(warehouse.options, "d.people"))
    assert isinstance(bucket_key(spec, spec.address.follow()), BucketKey)
    for change in ("ADD note STRING", f"MODIFY id {kind}"):
        (statement,) = parse_script(f"ALTER TABLE people {change};")
        warehouse.alter_table("d.people", *statement.changes)  # type: ignore[attr-defined]
        found = bucket_key(spec, warehouse.table("d.people"))
        assert isinstance(found, BucketKey) == change.startswith("ADD"), found
    with pytest.raises(OptionError, match="the type of id has changed"):
        choose(replace(spec, lookup=replace(lookup, strategy="bucket")))
