from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from tests.unit.paimon.bucket_values import KINDS, value

from streamhouse.paimon.catalog.table_declaration import TableDeclaration
from streamhouse.paimon.write.bucket_hash import bucket_of
from streamhouse.paimon.write.buckets import BucketGroups
from streamhouse.paimon.write.rows import gathered
from streamhouse.sql.plan import Column

if TYPE_CHECKING:
    from tests.unit.paimon.conftest import Lab


@pytest.mark.parametrize("kind", KINDS)
def test_rows_meet_in_the_buckets_that_the_table_gives_them(lab: Lab, kind: str) -> None:
    columns = [Column("a", kind), Column("id", "BIGINT"), Column("v", "INT")]
    # As Flink would: TIMESTAMP(9) cannot be written, and so no such table made.
    lab.warehouse._create("db.t", TableDeclaration(columns, ["id", "a"], (), {"bucket": "5"}))
    assert written(lab, 200) == [{0}, {1}, {2}, {3}, {4}]


def test_rows_of_a_table_without_a_key_are_in_the_buckets_of_its_bucket_key(lab: Lab) -> None:
    columns = [Column("a", "STRING"), Column("id", "BIGINT"), Column("v", "INT")]
    options = {"bucket": "5", "bucket-key": "id,a"}
    lab.warehouse.create_table("db", "t", columns, options=options)
    assert written(lab, 200) == [{0}, {1}, {2}, {3}, {4}]


def written(lab: Lab, count: int) -> list[set[int]]:
    """Our buckets of the rows of each of the table's, sorted."""
    table = lab.warehouse.table("db.t")
    kind = table.arrow_schema.field("a").type
    draw = random.Random(1)
    a = pa.array([value(kind, draw) for _ in range(count)], kind)
    ids = pa.array([draw.randint(-(2**63), 2**63 - 1) for _ in range(count)])
    numbers = pa.array(range(count), pa.int32())
    builder = table.rust.new_batch_write_builder()
    writer = builder.new_write()
    writer.write_arrow(pa.record_batch([a, ids, numbers], schema=table.arrow_schema))
    builder.new_commit().commit(writer.prepare_commit())
    found = [
        set(bucket_of([rows["id"], rows["a"]], 5).tolist())
        for split in table.splits()
        for rows in table.read(splits=[split])
    ]
    return sorted(found, key=str)


@pytest.mark.parametrize(
    ("options", "key", "groups"),
    [
        ({"bucket": "1"}, "id", None),
        ({"bucket": "4"}, "id", 4),
        ({"bucket": "100"}, "id", 8),
        ({"bucket": "4", "bucket-key": "id"}, "id", 4),
        ({"bucket": "4"}, "name", 4),
        ({"bucket": "4", "bucket-function.type": "mod"}, "id", None),
    ],
)
def test_tables_are_written_in_groups_where_buckets_are_fixed(
    lab: Lab, options: dict[str, str], key: str, groups: int | None
) -> None:
    columns = [Column("id", "BIGINT"), Column("name", "STRING")]
    lab.warehouse.create_table("db", "t", columns, [key], options=options)
    made = BucketGroups.of(lab.warehouse.table("db.t"))
    assert (None if made is None else made.count) == groups


def test_values_that_are_cast_to_one_key_are_of_one_group(lab: Lab) -> None:
    columns = [Column("at", "TIMESTAMP(3)"), Column("v", "INT")]
    lab.warehouse.create_table("db", "t", columns, ["at"], options={"bucket": "8"})
    grouping = BucketGroups.of(lab.warehouse.table("db.t"))
    assert grouping is not None
    times = pa.array([1000 * (row // 50) + row % 50 for row in range(1000)], pa.timestamp("us"))
    split = list(grouping.split(pa.record_batch({"at": times})))
    seen = [set(rows["at"].cast(pa.timestamp("ms"), safe=False).to_pylist()) for _, rows in split]
    assert len(seen) > 1 and sum(map(len, seen)) == len(set.union(*seen)) == 20


def test_batches_are_gathered_without_changing_their_rows() -> None:
    batches = [pa.record_batch({"v": range(first, first + 7)}) for first in range(0, 70, 7)]
    found = list(gathered(iter(batches), 20))
    assert [batch.num_rows for batch in found] == [21, 21, 21, 7]
    assert [row for batch in found for row in batch["v"].to_pylist()] == list(range(70))
