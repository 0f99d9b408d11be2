"""Compaction by procedures: which files it compacts, and that rows stay the same."""

from __future__ import annotations

import datetime

import pytest
from tests.integration.procedures.conftest import Lake
from tests.java_reads import java_buckets, java_rows
from tests.waiting import looks

from streamhouse import procedures
from streamhouse.errors import OptionError, TableError


def sales(lake: Lake, commits: int = 3, **options: str) -> str:
    """A table with two partitions of two buckets, each key once a commit."""
    columns = {"dt": "STRING", "id": "INT", "n": "BIGINT"}
    name = lake.table(columns, ("dt", "id"), ("dt",), bucket="2", **options)
    for commit in range(commits):
        days = ["a"] * 8 + ["b"] * 8
        lake.write(name, {"dt": days, "id": list(range(8)) * 2, "n": [commit] * 16})
    return name


def events(lake: Lake, commits: int, **options: str) -> str:
    name = lake.table({"id": "INT", "day": "DATE"}, (), ("day",), bucket="-1", **options)
    for commit in range(commits):
        days = [datetime.date(2026, 1, 1 + one % 2) for one in range(10)]
        lake.write(name, {"id": list(range(commit * 10, commit * 10 + 10)), "day": days})
    return name


def test_a_full_compaction_leaves_one_file_a_bucket(lake: Lake) -> None:
    name = sales(lake)
    before = lake.rows(name)
    (done,) = procedures.compact(lake.context, name).to_pylist()
    assert done == {
        "table": name,
        "groups": 4,
        "files_before": 12,
        "files_after": 4,
        "snapshot_id": lake.latest(name),
    }
    assert lake.kinds(name)[0] == "COMPACT"
    assert lake.rows(name) == before
    (again,) = procedures.compact(lake.context, name).to_pylist()
    assert (again["files_before"], again["files_after"], again["snapshot_id"]) == (4, 4, None)


@pytest.mark.parametrize(
    ("partitions", "where"),
    [("dt=b", None), (None, "dt > 'a'"), (None, "`dt` IN ('b', 'c')"), ("dt=c;dt=b", None)],
)
def test_partitions_are_chosen(lake: Lake, partitions: str | None, where: str | None) -> None:
    name = sales(lake, 2)
    (done,) = procedures.compact(lake.context, name, partitions=partitions, where=where).to_pylist()
    assert (done["groups"], done["files_before"], done["files_after"]) == (2, 4, 2)
    left = java_buckets(lake.context.sidecar, name)
    assert sorted((one.partition["dt"], one.files) for one in left) == [
        ("a", 2), ("a", 2), ("b", 1), ("b", 1),
    ]  # fmt: skip


def test_a_minor_compaction_takes_what_the_table_asks_for(lake: Lake) -> None:
    name = sales(lake, 2, num_sorted_run__compaction_trigger="3")
    (few,) = procedures.compact(lake.context, name, compact_strategy="minor").to_pylist()
    assert few["snapshot_id"] is None
    for _ in range(4):
        lake.write(name, {"dt": ["a"], "id": [1], "n": [9]})
    (done,) = procedures.compact(lake.context, name, compact_strategy="minor").to_pylist()
    assert done["files_after"] < done["files_before"]


def test_partitions_that_rest(lake: Lake) -> None:
    name = sales(lake, 2)
    (busy,) = procedures.compact(lake.context, name, partition_idle_time="1 h").to_pylist()
    assert (busy["groups"], busy["snapshot_id"]) == (0, None)
    for _ in looks():
        (done,) = procedures.compact(lake.context, name, partition_idle_time="1 ms").to_pylist()
        if done["groups"]:
            break
    assert done["groups"] == 4


def test_append_tables(lake: Lake) -> None:
    name = events(lake, 3)
    before = lake.rows(name)
    (one,) = procedures.compact(lake.context, name, where="day = DATE '2026-01-02'").to_pylist()
    assert (one["groups"], one["files_before"], one["files_after"]) == (1, 3, 1)
    (rest,) = procedures.compact(lake.context, name).to_pylist()
    assert (rest["groups"], rest["files_before"], rest["files_after"]) == (2, 4, 2)
    assert lake.rows(name) == before


def test_what_cannot_be_compacted_so(lake: Lake) -> None:
    name = sales(lake, 1)

    def refused(**given: str) -> str:
        with pytest.raises(OptionError) as caught:
            procedures.compact(lake.context, name, **given)
        return str(caught.value)

    assert "did you mean 'dt'" in refused(partitions="dd=1")
    assert "partition column" in refused(where="n > 1")
    assert "cannot be read" in refused(where="dt >")
    assert "not both" in refused(where="dt > 'a'", partitions="dt=a")
    assert "not one of none, order, zorder, hilbert" in refused(order_strategy="z")
    assert "needs order_by" in refused(order_strategy="zorder")
    assert "needs order_strategy" in refused(order_by="n")
    assert "full, minor" in refused(compact_strategy="some")
    assert "unknown" in refused(options="target-file-sizes=1mb")
    with pytest.raises(TableError, match="did you mean"):
        procedures.compact(lake.context, name[:-1] + "x")


def test_a_database(lake: Lake) -> None:
    keyed, plain = sales(lake, 2), events(lake, 2)
    names = f"{keyed}|{plain.partition('.')[2]}"
    done = procedures.compact_database(
        lake.context, including_databases="d.", including_tables=names
    ).to_pylist()
    assert sorted((one["table"], one["files_after"]) for one in done) == sorted(
        [(keyed, 4), (plain, 2)]
    )
    left_out = procedures.compact_database(lake.context, None, "combined", names, plain)
    assert [one["table"] for one in left_out.to_pylist()] == [keyed]


def test_manifests(lake: Lake) -> None:
    name = sales(lake, 4)
    before = lake.rows(name)
    procedures.compact_manifest(lake.context, name)
    assert lake.rows(name) == before
    assert java_rows(lake.context.sidecar, f"{name}$manifests").num_rows == 1
