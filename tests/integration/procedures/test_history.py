"""Tags, branches, rollback, expiry, consumers, clean-up: each against the Java core."""

from __future__ import annotations

import datetime
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from tests.integration.procedures.conftest import Lake
from tests.java_reads import java_rows

from streamhouse import procedures
from streamhouse.errors import DataLossError, OptionError, StreamhouseError, TableError
from streamhouse.paimon.maintenance import expiry

OLD, NEW = datetime.date(2020, 1, 31), datetime.date(2999, 1, 31)
OLD_TIME = datetime.datetime(2020, 1, 31, 8, 30, 0, 250_000)
NEW_TIME = datetime.datetime(2999, 1, 31, 8)


def table(lake: Lake, commits: int = 3, **options: str) -> str:
    """A table whose snapshot n holds the one row (1, n)."""
    name = lake.table({"id": "INT", "n": "BIGINT"}, ("id",), bucket="1", **options)
    for commit in range(1, commits + 1):
        lake.write(name, {"id": [1], "n": [commit]})
    return name


def tags(lake: Lake, name: str) -> dict[str, int]:
    found = java_rows(lake.context.sidecar, f"{name}$tags").to_pylist()
    return {item["tag_name"]: item["snapshot_id"] for item in found}


def branches(lake: Lake, name: str) -> list[str]:
    return sorted(
        java_rows(lake.context.sidecar, f"{name}$branches").column("branch_name").to_pylist()
    )


def consumers(lake: Lake, name: str) -> dict[str, int]:
    found = java_rows(lake.context.sidecar, f"{name}$consumers").to_pylist()
    return {item["consumer_id"]: item["next_snapshot_id"] for item in found}


def hold(lake: Lake, name: str, consumer: str, snapshot: int) -> None:
    folder = Path(lake.warehouse.table(name).location) / "consumer"
    folder.mkdir(exist_ok=True)
    (folder / f"consumer-{consumer}").write_text(f'{{"nextSnapshot": {snapshot}}}')


def test_tags(lake: Lake) -> None:
    name = table(lake)
    made = procedures.create_tag(lake.context, name, "first", 1, "1 d").to_pylist()
    assert made == [{"tag": "first", "snapshot_id": 1}]
    procedures.create_tag(lake.context, name, "last")
    assert tags(lake, name) == {"first": 1, "last": 3}
    procedures.rename_tag(lake.context, name, "last", "newest")
    procedures.replace_tag(lake.context, name, "first", 2, "2 d")
    assert tags(lake, name) == {"first": 2, "newest": 3}
    with pytest.raises(TableError, match="did you mean 'newest'"):
        procedures.delete_tag(lake.context, name, "first,newst")
    assert tags(lake, name) == {"first": 2, "newest": 3}
    procedures.delete_tag(lake.context, name, "first,newest")
    assert tags(lake, name) == {}
    with pytest.raises(TableError, match="no snapshot 9; 1 to 3 are left"):
        procedures.create_tag(lake.context, name, "x", 9)
    with pytest.raises(OptionError, match="must not be a number"):
        procedures.create_tag(lake.context, name, "12")


def test_tags_by_time(lake: Lake) -> None:
    name = table(lake, 2)
    second = lake.warehouse.table(name).snapshot(2).time_ms
    made = procedures.create_tag_from_timestamp(lake.context, name, "t", str(second)).to_pylist()
    assert made == [{"tag": "t", "snapshot_id": 2, "time_ms": second}]
    with pytest.raises(TableError, match="no snapshot as late"):
        procedures.create_tag_from_timestamp(lake.context, name, "u", "2999-01-01 00:00:00")
    assert procedures.expire_tags(lake.context, name).to_pylist() == []
    gone = procedures.expire_tags(lake.context, name, "2999-01-01 00:00:00").to_pylist()
    assert gone == [{"expired_tag": "t"}]


def test_automatic_tags(lake: Lake) -> None:
    options = {"tag__automatic_creation": "process-time", "tag__creation_period": "daily"}
    name = table(lake, 1, **options)
    procedures.trigger_tag_automatic_creation(lake.context, name)
    assert list(tags(lake, name).values()) == [1]
    with pytest.raises(OptionError, match=r"tag\.automatic-creation"):
        procedures.trigger_tag_automatic_creation(lake.context, table(lake, 1))


def test_branches(lake: Lake) -> None:
    name = table(lake)
    procedures.create_tag(lake.context, name, "two", 2)
    procedures.create_branch(lake.context, name, "empty")
    procedures.create_branch(lake.context, name, "b", "two")
    procedures.create_branch(lake.context, name, "b", "two", ignore_if_exists=True)
    assert branches(lake, name) == ["b", "empty"]
    procedures.rename_branch(lake.context, name, "b", "c")
    with pytest.raises(TableError, match="did you mean 'c'"):
        procedures.fast_forward(lake.context, name, "cc")
    hold(lake, name, "streamhouse-q", 3)
    with pytest.raises(StreamhouseError, match="streamhouse-q"):
        procedures.fast_forward(lake.context, name, "c")
    (Path(lake.warehouse.table(name).location) / "consumer/consumer-streamhouse-q").unlink()
    with pytest.raises(StreamhouseError, match="had 1 commits since branch 'c' began"):
        procedures.fast_forward(lake.context, name, "c")
    done = procedures.fast_forward(lake.context, name, "c", force=True).to_pylist()
    assert done == [{"branch": "c", "snapshot_id": 2}]
    assert lake.rows(name) == [{"id": 1, "n": 2}]
    procedures.delete_branch(lake.context, name, "c,empty")
    assert branches(lake, name) == []


def test_a_branch_that_began_empty_replaces_no_commit_unless_forced(lake: Lake) -> None:
    name = table(lake, 1)
    before = lake.rows(name)
    procedures.create_branch(lake.context, name, "empty")
    lake.write(f"{name}$branch_empty", {"id": [7], "n": [70]})
    with pytest.raises(StreamhouseError, match="had 1 commits since branch 'empty' began"):
        procedures.fast_forward(lake.context, name, "empty")
    assert lake.rows(name) == before
    procedures.fast_forward(lake.context, name, "empty", force=True)
    assert lake.rows(name) == [{"id": 7, "n": 70}]


def test_rollback(lake: Lake) -> None:
    name = table(lake, 5)
    procedures.create_tag(lake.context, name, "four", 4)
    done = procedures.rollback_to(lake.context, name, "four").to_pylist()
    assert done == [{"previous_snapshot_id": 5, "current_snapshot_id": 4}]
    assert lake.rows(name) == [{"id": 1, "n": 4}]
    procedures.rollback_to(lake.context, name, snapshot_id=3)
    assert lake.rows(name) == [{"id": 1, "n": 3}]
    second = lake.warehouse.table(name).snapshot(2).time_ms
    procedures.rollback_to_timestamp(lake.context, name, str(second))
    assert (lake.rows(name), lake.latest(name)) == ([{"id": 1, "n": 2}], 2)
    lake.write(name, {"id": [1], "n": [30]})
    assert lake.rows(name) == [{"id": 1, "n": 30}]
    with pytest.raises(DataLossError, match="no snapshot 9; 1 to 3 are left"):
        procedures.rollback_to(lake.context, name, "9")
    with pytest.raises(DataLossError, match="no snapshot as early"):
        procedures.rollback_to_timestamp(lake.context, name, "1999-01-01")
    with pytest.raises(OptionError, match="either a tag or a snapshot_id"):
        procedures.rollback_to(lake.context, name)


def test_a_rollback_takes_a_tag_that_is_named_like_a_snapshot(lake: Lake) -> None:
    name = table(lake, 5)
    procedures.create_tag(lake.context, name, "four", 4)
    tags = Path(lake.warehouse.table(name).location) / "tag"
    (tags / "tag-four").rename(tags / "tag-2")
    done = procedures.rollback_to(lake.context, name, "2").to_pylist()
    assert done == [{"previous_snapshot_id": 5, "current_snapshot_id": 4}]
    assert lake.rows(name) == [{"id": 1, "n": 4}]


def test_a_rollback_to_a_watermark_passes_over_snapshots_without_one(lake: Lake) -> None:
    name = table(lake, 4)
    with pytest.raises(DataLossError, match="no snapshot of watermark 20 is left"):
        procedures.rollback_to_watermark(lake.context, name, 20)
    folder = Path(lake.warehouse.table(name).location) / "snapshot"
    for snapshot, watermark in ((1, 10), (2, 20)):
        file = folder / f"snapshot-{snapshot}"
        updated = {**json.loads(file.read_text()), "watermark": watermark}
        file.write_text(json.dumps(updated))
    done = procedures.rollback_to_watermark(lake.context, name, 25).to_pylist()
    assert done == [{"previous_snapshot_id": 4, "current_snapshot_id": 2}]
    assert lake.rows(name) == [{"id": 1, "n": 2}]


def test_a_rollback_below_live_queries_is_refused(lake: Lake) -> None:
    name = table(lake)
    hold(lake, name, "streamhouse-reader", 3)
    hold(lake, name, "somebody", 3)
    with pytest.raises(StreamhouseError, match="streamhouse-reader .at 3.*force => true"):
        procedures.rollback_to(lake.context, name, "2")
    assert lake.latest(name) == 3
    assert procedures.rollback_to(lake.context, name, "3").num_rows == 1
    procedures.rollback_to(lake.context, name, "2", force=True)
    assert lake.rows(name) == [{"id": 1, "n": 2}]


def test_snapshots_expire_but_for_what_is_held(lake: Lake) -> None:
    name = table(lake, 6)
    nothing = procedures.expire_snapshots(lake.context, name).to_pylist()
    assert nothing == [{"expired_snapshots": 0, "earliest_snapshot_id": 1, "latest_snapshot_id": 6}]
    hold(lake, name, "streamhouse-q", 3)
    done = procedures.expire_snapshots(
        lake.context, name, 1, older_than="2999-01-01 00:00:00",
        options="consumer.changelog-only=true",
    )  # fmt: skip
    assert done.to_pylist()[0]["earliest_snapshot_id"] == 3
    procedures.create_tag(lake.context, name, "four", 4)
    procedures.clear_consumers(lake.context, name, "streamhouse-.*")
    few = procedures.expire_snapshots(lake.context, name, retain_max=2, max_deletes=1)
    assert few.to_pylist()[0]["expired_snapshots"] == 1
    procedures.expire_snapshots(lake.context, name, 1)
    assert java_rows(lake.context.sidecar, name, options={"scan.tag-name": "four"}).to_pylist() == [
        {"id": 1, "n": 4}
    ]
    assert lake.rows(name) == [{"id": 1, "n": 6}]


def test_changelogs_expire(lake: Lake) -> None:
    name = table(
        lake, 4, changelog_producer="input", changelog__num_retained__max="100",
        changelog__num_retained__min="50", changelog__time_retained="1 d",
    )  # fmt: skip
    procedures.expire_snapshots(lake.context, name, 1)
    folder = Path(lake.warehouse.table(name).location) / "changelog"
    kept = len(list(folder.glob("changelog-*")))
    assert kept == 3
    done = procedures.expire_changelogs(lake.context, name, 2, 1).to_pylist()
    assert done == [{"expired_changelogs": kept - len(list(folder.glob("changelog-*")))}]
    assert done[0]["expired_changelogs"] > 0


def test_partitions_expire_and_are_dropped(lake: Lake) -> None:
    name = lake.table({"id": "INT", "dt": "STRING"}, (), ("dt",), bucket="-1")
    lake.write(name, {"id": [1, 2, 3], "dt": ["2020-01-01", "2020-01-02", "2999-01-01"]})
    with pytest.raises(OptionError, match=r"partition\.expiration-time"):
        procedures.expire_partitions(lake.context, name)
    procedures.mark_partition_done(lake.context, name, "dt=2020-01-01")
    folder = Path(lake.warehouse.table(name).location)
    assert [path.parent.name for path in folder.rglob("_SUCCESS")] == ["dt=2020-01-01"]
    gone = procedures.drop_partition(lake.context, name, "dt=2020-01-02").to_pylist()
    assert gone == [{"partition": "dt=2020-01-02"}]
    gone = procedures.expire_partitions(
        lake.context, name, "10 d", timestamp_formatter="yyyy-MM-dd", timestamp_pattern="$dt"
    ).to_pylist()
    assert gone == [{"partition": "dt=2020-01-01"}]
    assert lake.rows(name) == [{"id": 3, "dt": "2999-01-01"}]


def test_partitions_of_null_and_with_commas_are_named(lake: Lake) -> None:
    name = lake.table({"id": "INT", "p": "STRING"}, (), ("p",), bucket="-1")
    lake.write(name, {"id": [1, 2, 3, 4], "p": ["a", "a,b;c", None, "NULL"]})
    gone = procedures.drop_partition(lake.context, name, "p='a,b;c'").to_pylist()
    assert gone == [{"partition": "p=a,b;c"}]
    assert procedures.drop_partition(lake.context, name, "p=NULL").num_rows == 1
    assert lake.rows(name) == [{"id": 1, "p": "a"}, {"id": 4, "p": "NULL"}]
    procedures.drop_partition(lake.context, name, "p='NULL'")
    assert lake.rows(name) == [{"id": 1, "p": "a"}]


def test_consumers(lake: Lake) -> None:
    name = table(lake)
    for consumer in ("a1", "a2", "b", "streamhouse-q"):
        hold(lake, name, consumer, 2)
    procedures.reset_consumer(lake.context, name, "b", 3)
    assert consumers(lake, name)["b"] == 3
    with pytest.raises(TableError, match="no snapshot 9"):
        procedures.reset_consumer(lake.context, name, "b", 9)
    with pytest.raises(OptionError, match="belongs to a query"):
        procedures.reset_consumer(lake.context, name, "streamhouse-q")
    done = procedures.clear_consumers(lake.context, name, "a.*", "a2").to_pylist()
    assert done == [{"consumer_id": "a1", "next_snapshot_id": 2, "result": "removed"}]
    procedures.clear_consumers(lake.context, name)
    assert consumers(lake, name) == {"streamhouse-q": 2}


def lost_file(lake: Lake, name: str, hours: float) -> Path:
    folder = Path(lake.warehouse.table(name).location) / "bucket-0"
    path = folder / f"data-lost-{hours}.parquet"
    path.write_bytes(b"12345")
    when = time.time() - hours * 3600
    os.utime(path, (when, when))
    return path


def test_orphans_are_removed_when_they_are_old(lake: Lake) -> None:
    name = table(lake)
    old, young = lost_file(lake, name, 48), lost_file(lake, name, 3)

    def removed(**given: Any) -> list[tuple[str, int, bool]]:
        found = procedures.remove_orphan_files(lake.context, name, **given).to_pylist()
        return [(Path(item["file"]).name, item["bytes"], item["removed"]) for item in found]

    assert removed(dry_run=True) == [(old.name, 5, False)]
    assert old.exists()
    assert removed() == [(old.name, 5, True)]
    assert (old.exists(), young.exists()) == (False, True)
    before = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(time.time() - 2 * 3600))
    assert removed(older_than=before) == [(young.name, 5, True)]
    with pytest.raises(OptionError, match="less than an hour ago"):
        removed(older_than=str(int(time.time() * 1000)))
    assert lake.rows(name) == [{"id": 1, "n": 3}]


def test_orphans_of_a_database(lake: Lake) -> None:
    name = table(lake)
    path = lost_file(lake, name, 48)
    found = procedures.remove_orphan_files(lake.context, "db.*", dry_run=True).to_pylist()
    assert path.name in {Path(item["file"]).name for item in found if item["table"] == name}


def test_purging_empties_a_table(lake: Lake) -> None:
    name = table(lake)
    hold(lake, name, "streamhouse-q", 3)
    with pytest.raises(StreamhouseError, match="streamhouse-q"):
        procedures.purge_files(lake.context, name)
    procedures.purge_files(lake.context, name, force=True)
    assert lake.rows(name) == []


PARTITIONS: tuple[tuple[dict[str, str], str | None, str | None, list[tuple[Any, ...]]], ...] = (
    ({"d": "DATE"}, None, None, [(OLD,), (NEW,), (None,)]),
    ({"d": "DATE"}, "$d", "yyyyMMdd", [(OLD,), (NEW,)]),
    ({"d": "TIMESTAMP(3)"}, None, None, [(OLD_TIME,), (NEW_TIME,), (None,)]),
    ({"d": "STRING"}, None, "yyyyMMdd", [
        ("20200131",), ("29990131",), ("2020-01-31",), ("",), (None,)
    ]),
    ({"d": "INT"}, None, "yyyyMMdd", [(20200131,), (29990131,), (None,)]),
    ({"d": "DATE", "r": "STRING"}, "$d", None, [
        (day, region) for day in (OLD, NEW, None) for region in ("a", "a,b", ",", "", None, "null")
    ]),
    ({"y": "INT", "r": "STRING", "m": "STRING"}, "$y-$m-01", None, [
        (2020, "x,y", "01"), (2020, None, "1"), (2999, "x,y", "01"), (None, "x,y", "01"),
        (2020, "x", None),
    ]),
)  # fmt: skip


@pytest.mark.parametrize("given", PARTITIONS, ids=lambda given: ",".join(given[0].values()))
def test_old_partitions_of_any_type_expire_and_no_others(
    lake: Lake, given: tuple[dict[str, str], str | None, str | None, list[tuple[Any, ...]]]
) -> None:
    kinds, pattern, formatter, values = given
    name = lake.table(
        {"id": "INT", **kinds}, (), tuple(kinds), bucket="-1", partition__expiration_time="10 d"
    )
    columns = dict(zip(kinds, map(list, zip(*values, strict=True)), strict=True))
    lake.write(name, {"id": list(range(len(values))), **columns})
    if formatter is None and pattern is None:
        expiry.expire(lake.context.sidecar, lake.warehouse.table(name))
    else:
        procedures.expire_partitions(
            lake.context, name, timestamp_formatter=formatter, timestamp_pattern=pattern
        )
    old = {OLD, OLD_TIME, "20200131", 20200131, 2020}
    stay = [row for row in values if row[0] not in old or (len(row) == 3 and row[2] is None)]
    left = [tuple(row[key] for key in kinds) for row in lake.rows(name)]
    assert sorted(left, key=str) == sorted(stay, key=str)
