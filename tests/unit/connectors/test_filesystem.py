"""The `filesystem` connector without Spark: files of bounded statements, commits, offsets."""

from __future__ import annotations

import datetime
import gzip
import json
import os
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamhouse.connectors.bad_records import Replay
from streamhouse.connectors.base import WrittenBatch
from streamhouse.connectors.filesystem.connector import FilesystemSource
from streamhouse.connectors.filesystem.folders import partition_values, split_rows
from streamhouse.connectors.filesystem.options import FilesystemOptions
from streamhouse.connectors.filesystem.sink import FilesCommitter
from streamhouse.connectors.registry import check_declaration, connector
from streamhouse.connectors.specs import SinkSpec, SourceSpec
from streamhouse.errors import DataLossError, OptionError, RecordError, StreamhouseError, TableError
from streamhouse.sql.plan import Column, TableInfo

COLUMNS = (Column("id", "INT"), Column("name", "STRING"), Column("day", "DATE"))
ROWS: list[dict[str, Any]] = [
    {"id": 1, "name": 'a"b,\n', "day": None},
    {"id": 2, "name": "é", "day": None},
    {"id": None, "name": "x", "day": None},
]


def options(folder: Path, name: str = "json", **more: str) -> dict[str, str]:
    return {"path": str(folder), "format": name, **more}


def sink(
    folder: Path, name: str = "json", by: tuple[str, ...] = (), size: str = "1 mb"
) -> SinkSpec:
    given = options(folder, name, **{"sink.rolling-policy.file-size": size})
    return SinkSpec("filesystem", given, COLUMNS, partitioned_by=by)


def batch(spec: SinkSpec, rows: list[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, spec.arrow_schema)


def insert(spec: SinkSpec, *batches: pa.RecordBatch) -> None:
    """Write all rows as a bounded INSERT does: in one batch of a query that has ended then."""
    made, query_id = spec.open(), "0123456789abcdef01234567"
    writer, committer = made.writer(query_id, 0, query_id[8:20]), made.committer(query_id)
    for rows in batches:
        writer.write(rows)
    committer.put(WrittenBatch(0, writer.prepare()))
    writer.close()
    committer.forget()


def files(folder: Path) -> list[str]:
    found = (path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    return sorted(name for name in found if not name.startswith("."))


def read(folder: Path, name: str = "json", by: tuple[str, ...] = (), **more: str) -> list[Any]:
    table = TableInfo(("c", "d", "t"), COLUMNS, partitioned_by=by, connector="filesystem")
    names = [column.name for column in COLUMNS]
    _, rows = connector("filesystem").scan(table, options(folder, name, **more), names)
    return sorted((row for b in rows() for row in b.to_pylist()), key=str)


@pytest.mark.parametrize("name", ["json", "csv", "parquet"])
@pytest.mark.parametrize("by", [(), ("day",), ("day", "name")])
def test_rows_are_read_as_they_were_written(tmp_path: Path, name: str, by: tuple[str, ...]) -> None:
    spec = sink(tmp_path, name, by)
    insert(spec, batch(spec, ROWS), batch(spec, ROWS[:0]))
    assert read(tmp_path, name, by) == sorted(ROWS, key=str)
    assert all(file.count("/") == len(by) and file.endswith(name) for file in files(tmp_path))
    assert not (tmp_path / ".streamhouse").exists()


@given(st.lists(st.one_of(st.none(), st.text(max_size=6)), min_size=1, max_size=5))
def test_every_partition_value_names_its_folder(values: list[str | None]) -> None:
    field = pa.field("p/=", pa.string())
    rows = pa.record_batch([pa.array(values), pa.array(range(len(values)))], ["p/=", "n"])
    split = list(split_rows(rows, ["p/="], "none%"))
    assert sorted(n for _, part in split for n in part.column("n").to_pylist()) == [
        *range(len(values))
    ]
    for folder, part in split:
        (value,) = partition_values(folder, [field], "none%").values()
        assert {values[n] or None for n in part.column("n").to_pylist()} == {value.as_py()}
        assert folder.count("/") == 0


def round_trip(
    folder: Path,
    columns: tuple[Column, ...],
    rows: list[tuple[Any, ...]],
    by: tuple[str, ...] = (),
    **more: str,
) -> list[tuple[Any, ...]]:
    """The rows, written as CSV and read."""
    given = options(folder, "csv", **more)
    spec = SinkSpec("filesystem", given, columns, partitioned_by=by)
    names = [column.name for column in columns]
    written = batch(spec, [dict(zip(names, row, strict=True)) for row in rows])
    insert(spec, written)
    table = TableInfo(("c", "d", "t"), columns, partitioned_by=by, connector="filesystem")
    _, read_rows = connector("filesystem").scan(table, given, names)
    return [tuple(row.values()) for one in read_rows() for row in one.to_pylist()]


@pytest.mark.parametrize("delimiter", [",", "\\t", " "])
def test_rows_without_any_value_are_read(tmp_path: Path, delimiter: str) -> None:
    columns = (Column("a", "INT"), Column("b", "INT"))
    rows: list[tuple[Any, ...]] = [(None, None), (1, None), (None, 2)]
    more: Any = {"csv.field-delimiter": delimiter}
    assert round_trip(tmp_path, columns, rows, **more) == rows


@pytest.mark.parametrize(
    ("name", "kind", "value"),
    [
        ("_p", "INT", 1),
        (".p", "INT", 1),
        ("p", "STRING", "_x"),
        ("p", "STRING", "a\0b"),
        ("p", "TIME(3)", datetime.time(1, 2, 3, 4000)),
    ],
)
def test_rows_of_any_partition_are_read(tmp_path: Path, name: str, kind: str, value: Any) -> None:
    columns = (Column(name, kind), Column("n", "INT"))
    assert round_trip(tmp_path, columns, [(value, 1)], by=(name,)) == [(value, 1)]


def test_a_partition_that_cannot_be_a_folder_is_one_line(tmp_path: Path) -> None:
    columns = (Column("p", "BYTES"), Column("n", "INT"))
    with pytest.raises(TableError, match="'p' cannot be the name of a folder"):
        round_trip(tmp_path, columns, [(b"\xff", 1)], by=("p",))


def test_files_roll_at_their_size(tmp_path: Path) -> None:
    spec = sink(tmp_path, size="100 kb")
    rows = [{"id": n, "name": "x" * 50, "day": None} for n in range(20_000)]
    insert(spec, batch(spec, rows))
    sizes = [(tmp_path / file).stat().st_size for file in files(tmp_path)]
    assert len(sizes) == 5 and max(sizes) < 400_000
    assert len(read(tmp_path)) == 20_000


def written(spec: SinkSpec, number: int, attempt: str, rows: list[Any]) -> WrittenBatch:
    writer = spec.open().writer("query-id", number, attempt)
    writer.write(batch(spec, rows))
    return WrittenBatch(number, writer.prepare())


def test_a_batch_becomes_visible_once(tmp_path: Path) -> None:
    spec = sink(tmp_path)
    first = written(spec, 0, "a", ROWS[:1])
    assert files(tmp_path) == []
    assert spec.open().committer("query-id").commit(lambda: first, lambda: None)
    assert read(tmp_path) == ROWS[:1]
    again = written(spec, 0, "b", ROWS[:1])
    committer = spec.open().committer("query-id")
    assert not committer.commit(lambda: again, lambda: None)
    written(spec, 1, "dead", ROWS)
    alive = written(spec, 1, "c", ROWS[1:])
    assert committer.remove_leftovers(1, keep={"c"}) == 1
    assert committer.commit(lambda: alive, lambda: None)
    assert not committer.commit(lambda: None, lambda: None)
    assert read(tmp_path) == sorted(ROWS, key=str)
    assert [path.name for path in (tmp_path / ".streamhouse").rglob("*")] == ["query-id.json"]


@pytest.mark.parametrize("renames", [0, 1, 2])
def test_a_commit_that_was_cut_off_is_completed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, renames: int
) -> None:
    spec = sink(tmp_path, by=("name",))
    made = written(spec, 3, "a", ROWS[:2])
    left = iter([True] * renames)
    rename = Path.rename

    def cut_off(self: Path, target: Path) -> Path:
        if not next(left, False):
            raise InterruptedError
        return rename(self, target)

    with monkeypatch.context() as patch:
        if renames < 2:
            patch.setattr(Path, "rename", cut_off)
            with pytest.raises(InterruptedError):
                spec.open().committer("query-id").commit(lambda: made, lambda: None)
            assert len(files(tmp_path)) == renames
    committer = spec.open().committer("query-id")
    if renames == 2:
        assert committer.commit(lambda: made, lambda: None)
    assert committer.remove_leftovers(3) == 0
    assert len(read(tmp_path, by=("name",))) == 2
    again = written(spec, 3, "b", ROWS[:2])
    assert not committer.commit(lambda: again, lambda: None)
    assert len(files(tmp_path)) == 2


def test_a_lost_file_is_reported(tmp_path: Path) -> None:
    committer = FilesCommitter(FilesystemOptions(str(tmp_path), "json"), "q")
    made = json.dumps([[".streamhouse/q/0-a/x.json", "x.json"]]).encode()
    with pytest.raises(DataLossError, match="of batch 0 is missing: it was committed"):
        committer.put(WrittenBatch(0, [made]))


def test_files_of_the_last_batch_may_be_moved_away(tmp_path: Path) -> None:
    spec = sink(tmp_path, by=("name",))
    first = written(spec, 0, "a", ROWS)
    assert spec.open().committer("query-id").commit(lambda: first, lambda: None)
    for name in files(tmp_path):
        (tmp_path / name).unlink()
    committer = spec.open().committer("query-id")
    assert not committer.commit(lambda: written(spec, 0, "b", ROWS), lambda: None)
    assert files(tmp_path) == []


def test_a_source_reads_each_file_once(tmp_path: Path) -> None:
    every = {"source.monitor-interval": "1ms"}
    spec = SourceSpec("filesystem", options(tmp_path, **every), COLUMNS)
    assert FilesystemSource(spec).latest_offset({}) == {}
    source = FilesystemSource(spec)
    (tmp_path / "_hidden").mkdir()
    (tmp_path / "_hidden" / "x.json").write_text("broken")
    (tmp_path / "a.json").write_text('{"id": 1}\n\n{"id": 2}')
    with gzip.open(tmp_path / "b.json.gz", "wb") as file:
        file.write(b'{"id": 3}\n')
    os.utime(tmp_path / "b.json.gz", (1, 1))
    one = source.latest_offset({})
    assert [name for name, *_ in one["files"]] == ["b.json.gz", "a.json"]
    assert json.loads(json.dumps(one)) == one
    assert source.latest_offset(one) == one and not source.finished(one) and source.caught_up(one)
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "c.json").write_text('{"id": 4}')
    os.utime(tmp_path / "sub" / "c.json", (0, 0))
    two = FilesystemSource(spec).latest_offset(one)

    def ids(start: Any, end: Any) -> list[int]:
        parts = source.partitions(start, end, 2)
        return [n for p in parts for b in source.read(p) for n in b.column("id").to_pylist()]

    assert (ids({}, one), ids(one, two), ids(one, one)) == ([3, 1, 2], [4], [])
    (tmp_path / "a.json").write_text('{"id": 1}')
    with pytest.raises(DataLossError, match="has 9 bytes, but 20 when it was listed"):
        ids({}, one)
    (tmp_path / "a.json").unlink()
    with pytest.raises(DataLossError, match=r"a\.json was deleted before it was read"):
        ids({}, one)


def test_without_an_interval_the_source_ends(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('1,"x\ny",\n2,z,2024-01-02\n')
    source = FilesystemSource(SourceSpec("filesystem", options(tmp_path, "csv"), COLUMNS))
    end = source.latest_offset({})
    assert source.finished(end) and not source.finished({})
    assert [row["name"] for row in read(tmp_path / "a.csv", "csv")] == ["x\ny", "z"]


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"id": 1}\n{"id": "x"}\n')
    with pytest.raises(RecordError, match=r"a\.json, 22 bytes, record 2: .*'id'.*'bad-records'"):
        read(tmp_path)
    (tmp_path / "a.json").unlink()
    pq.write_table(pa.table({"id": [2**40], "price": [Decimal(1)]}), tmp_path / "a.parquet")
    with pytest.raises(TableError, match="column 'id' is int64, not int32"):
        read(tmp_path, "parquet")
    with pytest.raises(TableError, match="no value of the partition column 'day'; expected"):
        read(tmp_path, "parquet", ("day",))
    (tmp_path / "a.parquet").unlink()
    (tmp_path / "a.json.gz").write_bytes(gzip.compress(b'{"id": 1}\n' * 9)[:-9])
    with pytest.raises(
        TableError, match=r"a\.json\.gz cannot be read: it is not a complete gzip file"
    ):
        read(tmp_path)


FLOATS = pa.map_(pa.string(), pa.list_(pa.float64()))


@pytest.mark.parametrize(
    ("declared", "values", "message"),
    [
        (Column("c", "FLOAT"), pa.array([1.5, 1e300]), r"c' is double, not float: 1e\+300 not in"),
        (Column("c", "MAP<STRING, ARRAY<FLOAT>>"), pa.array([[("k", [-1e300])]], FLOATS),
         r"c' is map.*-1e\+300 not in range"),
        (Column("c", "ROW<a FLOAT>"), pa.array([{"a": 1e39}]), r"1e\+39 not in range"),
        (Column("c", "BIGINT", nullable=False), pa.array([1, None]), "BIGINT NOT NULL, but null"),
        (Column("d", "BIGINT", nullable=False), pa.array([1]), "BIGINT NOT NULL, but not in"),
        (Column("c", "ARRAY<INT NOT NULL>"), pa.array([[1, None]]), "null where INT NOT NULL"),
        (Column("c", "ROW<a INT NOT NULL>"), pa.array([{"a": None}]), "column 'c' is struct"),
    ],
)  # fmt: skip
def test_values_of_parquet_files_fit_or_are_an_error(
    tmp_path: Path, declared: Column, values: pa.Array, message: str
) -> None:
    pq.write_table(pa.table({"c": values}), tmp_path / "a.parquet")
    table = TableInfo(("c", "d", "t"), (declared,), connector="filesystem")
    given = options(tmp_path, "parquet")
    _, rows = connector("filesystem").scan(table, given, [declared.name])
    with pytest.raises(TableError, match=message):
        list(rows())


def test_floats_of_parquet_files_are_read_from_doubles(tmp_path: Path) -> None:
    values = [[("k", [1.5, None, float("-inf")]), ("l", None)], None, []]
    pq.write_table(pa.table({"c": pa.array(values, FLOATS)}), tmp_path / "a.parquet")
    column = Column("c", "MAP<STRING, ARRAY<FLOAT>>")
    table = TableInfo(("c", "d", "t"), (column,), connector="filesystem")
    _, rows = connector("filesystem").scan(table, options(tmp_path, "parquet"), ["c"])
    assert [row["c"] for batch in rows() for row in batch.to_pylist()] == values


def test_a_folder_of_null_is_no_value_that_is_not_null() -> None:
    field = pa.field("p", pa.string(), nullable=False)
    with pytest.raises(TableError, match="stands for null, but the partition column is NOT NULL"):
        partition_values("p=none", [field], "none")


def test_a_quote_that_is_not_closed_takes_the_rest_of_its_file(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('1,x,\n2,"y,\n' + "3,z,\n" * 50_000)
    skip: Any = {"bad-records": "skip"}
    assert read(tmp_path, "csv", **skip) == [{"id": 1, "name": "x", "day": None}]


@pytest.mark.parametrize(
    ("text", "more"),
    [
        ('1,"\\"x",\n2,y,\n', {"csv.escape-character": "\\"}),
        ('# don"t\n1,"""x",\n2,y,\n', {"csv.allow-comments": "true"}),
    ],
)
def test_quotes_that_enclose_nothing_do_not_join_lines(
    tmp_path: Path, text: str, more: Any
) -> None:
    (tmp_path / "a.csv").write_text(text)
    assert [row["name"] for row in read(tmp_path, "csv", **more)] == ['"x', "y"]


OF_FILE = (
    Column("id", "INT"),
    Column("part", "INT"),
    Column("path", "STRING", metadata="file.path", virtual=True),
    Column("name", "STRING", metadata="file.name", virtual=True),
    Column("size", "BIGINT", metadata="file.size", virtual=True),
    Column("at", "TIMESTAMP_LTZ(3)", metadata="file.modification-time", virtual=True),
)


def of_file(folder: Path, **more: str) -> FilesystemSource:
    given = options(folder, **more)
    return FilesystemSource(SourceSpec("filesystem", given, OF_FILE, partitioned_by=("part",)))


def source_rows(source: FilesystemSource, start: Any, end: Any) -> list[dict[str, Any]]:
    parts = source.partitions(start, end, 4)
    return [row for part in parts for batch in source.read(part) for row in batch.to_pylist()]


def test_metadata_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "part=7").mkdir()
    path = tmp_path / "part=7" / "a, b.json"
    path.write_text('{"id": 1}')
    os.utime(path, (1, 2.5))
    source = of_file(tmp_path)
    (row,) = source_rows(source, {}, source.latest_offset({}))
    assert row.pop("at").timestamp() == 2.5
    assert row == {"id": 1, "part": 7, "path": str(path), "name": "a, b.json", "size": 9}
    with pytest.raises(OptionError, match="METADATA column 'path' cannot be written; declare it"):
        connector("filesystem").sink(SinkSpec("filesystem", options(tmp_path), OF_FILE))


def test_bad_records_are_left_out_and_read_again(tmp_path: Path) -> None:
    (tmp_path / "part=7").mkdir()
    path = tmp_path / "part=7" / "a.json"
    path.write_text('{"id": 1}\n{"id": "x"}\n\nno json\n{"id": 2}')
    os.utime(path, (1, 2.5))
    keep = {"bad-records": "table", "bad-records.table": "d.bad"}
    wrong = of_file(tmp_path, **keep)
    end = wrong.latest_offset({})
    assert [row["id"] for row in source_rows(wrong, {}, end)] == [1, 2]
    kept = wrong.bad_records().to_pylist()
    assert [(row["position"], row["value"], row["timestamp"]) for row in kept] == [
        (f"file {path}, 40 bytes, record 2", b'{"id": "x"}', 2500),
        (f"file {path}, 40 bytes, record 3", b"no json", 2500),
    ]
    path.unlink()

    class Kept:
        """`DeadLetterReplays` of a request up to batch 0, one record of which was corrected."""

        def requested(self) -> int:
            return 0

        def rows(self, replay: Replay) -> list[Any]:
            assert replay == Replay(-1, 0)
            return [{**row, "value": row["value"].replace(b'"x"', b"3")} for row in kept]

    mended = of_file(tmp_path, **keep)
    mended.replay_from(Kept())  # type: ignore[arg-type]
    assert not mended.finished(end) and not mended.caught_up(end)
    after = mended.latest_offset(end)
    assert json.loads(json.dumps(after)) == after
    (row,) = source_rows(mended, end, after)
    assert row.pop("at").timestamp() == 2.5
    assert row == {"id": 3, "part": 7, "path": str(path), "name": "a.json", "size": 40}
    assert mended.bad_records().num_rows == 1
    assert mended.latest_offset(after) == after and mended.finished(after)
    (tmp_path / "part=7" / "b.json").write_text('{"id": 4}')
    later = of_file(tmp_path, **keep).latest_offset(after)
    assert later["replayed"] == 0
    assert [source_row["id"] for source_row in source_rows(mended, after, later)] == [4]


def test_a_success_file_marks_the_partitions_of_a_commit(tmp_path: Path) -> None:
    given = options(tmp_path, **{"sink.partition-commit.policy.kind": "success-file"})
    spec = SinkSpec("filesystem", given, COLUMNS, partitioned_by=("name",))
    made = written(spec, 0, "a", ROWS[1:])
    assert spec.open().committer("query-id").commit(lambda: made, lambda: None)
    assert [file for file in files(tmp_path) if file.endswith("_SUCCESS")] == [
        "name=x/_SUCCESS", "name=é/_SUCCESS"
    ]  # fmt: skip
    assert len(read(tmp_path, by=("name",))) == 2


@pytest.mark.parametrize(
    ("given", "by", "message"),
    [
        ({"path": "hdfs://host/x"}, (), "neither on a local or mounted file system"),
        ({"s3.region": "x"}, (), "'s3.region' is of an object store, but the option 'path' is"),
        ({"path": "s3://b/x", "s3.regoin": "x"}, (), "did you mean 's3.region'"),
        ({"format": "orc"}, (), "'orc' is not one of csv, json, parquet"),
        ({"csv.field-delimiter": ";"}, (), "does not apply to 'format' = 'json'"),
        ({"json.ignore-parse-error": "true"}, (), "did you mean 'json.ignore-parse-errors'"),
        ({"source.monitor-interval": "0"}, (), "the least is '1ms'"),
        ({"partition.default-name": "a/b"}, (), "is not a name of a folder"),
        ({}, ("id", "name", "day"), "declare a column besides those of PARTITIONED BY"),
        ({"sink.partition-commit.policy.kind": "metastore"}, (), "is not one of success-file"),
        ({"sink.partition-commit.success-file.name": "_X"}, (), "needs 'sink.partition-commit.pol"),
        ({"format": "parquet", "bad-records": "skip"}, (), "a parquet file is read as a whole or"),
        ({"bad-records": "skip", "bad-records.table": "t"}, (), "needs 'bad-records' = 'table'"),
        ({"paht": "x"}, (), "unknown option 'paht'; did you mean 'path'"),
    ],
)
def test_wrong_options(
    tmp_path: Path, given: dict[str, str], by: tuple[str, ...], message: str
) -> None:
    table = TableInfo(
        ("c", "d", "t"), COLUMNS, partitioned_by=by, options=options(tmp_path) | given,
        connector="filesystem",
    )  # fmt: skip
    with pytest.raises(StreamhouseError, match=message) as raised:
        check_declaration(table, "table t")
    assert isinstance(raised.value, OptionError | TableError)


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize(
    ("form", "first"), [("csv", '"1",a,\n'), ("csv", "1,a,\n"), ("json", '{"id":1,"name":"a"}\n')]
)
def test_a_byte_order_mark_is_no_part_of_the_first_value(
    tmp_path: Path, form: str, first: str, zipped: bool
) -> None:
    text = ("\ufeff" + first).encode()
    (tmp_path / f"a.{form}{'.gz' if zipped else ''}").write_bytes(
        gzip.compress(text) if zipped else text
    )
    assert read(tmp_path, form) == [{"id": 1, "name": "a", "day": None}]


def test_a_byte_order_mark_in_comments_and_values(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("\ufeff#x\n1,\ufeffa,\n", "utf-8")
    rows = read(tmp_path, "csv", (), **{"csv.allow-comments": "true"})
    assert rows == [{"id": 1, "name": "\ufeffa", "day": None}]
