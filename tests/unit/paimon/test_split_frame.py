"""Parses serialised splits as pypaimon does, and serialises them unchanged."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pypaimon.read.split_serializer import deserialize_split_v1, serialize_split_v1
from pypaimon.table.source.deletion_file import DeletionFile
from pypaimon_rust.datafusion import Split

from streamhouse.errors import StreamhouseError
from streamhouse.paimon.storage.split_files import SplitFrame

if TYPE_CHECKING:
    from tests.unit.paimon.conftest import Lab


def test_files_are_those_that_pypaimon_finds(lab: Lab) -> None:
    table = lab.make("t")
    for batch in range(3):
        lab.write(table, batch, [(number, number) for number in range(batch + 1)])
    (split,) = table.splits()
    whole = deserialize_split_v1(split, [])
    whole.data_deletion_files = [DeletionFile("/i/index-ä-1", 1, 22, None), None, None]
    whole.files[1].external_path = whole.files[1].file_path = "/elsewhere/ä/data-1.parquet"
    whole.files[2].file_name = "s.orc"
    for one in (split, *table.changes(0, 3, "delta"), bytes(serialize_split_v1(whole))):
        frame, expected = SplitFrame.parse(one), deserialize_split_v1(one, [])
        assert frame.serialize() == one
        assert (frame.streaming, frame.raw) == (expected.is_streaming, expected.raw_convertible)
        bucket = (expected.snapshot_id, expected.bucket, expected.total_buckets)
        assert (frame.snapshot, frame.bucket, frame.total_buckets) == bucket
        assert [(one.size, one.rows, one.schema_id, one.level) for one in frame.files] == [
            (one.file_size, one.row_count, one.schema_id, one.level) for one in expected.files
        ]
        assert frame.paths() == [one.file_path for one in expected.files]
        assert frame.folder == expected.bucket_path


def test_a_split_can_have_its_files_in_another_folder(lab: Lab) -> None:
    table = lab.make("t")
    lab.write(table, 0, [(1, 1)])
    (split,) = table.splits()
    frame = SplitFrame.parse(split)
    moved = frame.moved(frame.folder, "/elsewhere/ä/bucket-0")
    found = deserialize_split_v1(moved.serialize(), [])
    assert found.bucket_path == moved.folder == "/elsewhere/ä/bucket-0"
    assert moved.moved(moved.folder, frame.folder).serialize() == split


def test_a_file_keeps_its_deletion_vector(lab: Lab) -> None:
    table = lab.make("t")
    for batch in range(3):
        lab.write(table, batch, [(number, number) for number in range(batch + 1)])
    whole = deserialize_split_v1(table.splits()[0], [])
    vector = DeletionFile("/index/index-1", 1, 22, 3)
    whole.data_deletion_files = [None, vector, None]
    rows = whole.files[1].row_count
    part = SplitFrame.parse(bytes(serialize_split_v1(whole))).only(lambda file: file.rows == rows)
    assert deserialize_split_v1(part.serialize(), []).data_deletion_files == [vector]


def test_a_split_of_fewer_files_has_fewer_rows(lab: Lab) -> None:
    table = lab.make("t")
    for batch in range(3):
        lab.write(table, batch, [(number, batch) for number in range(batch + 1)])
    (split,) = table.splits()
    part = SplitFrame.parse(split).only(lambda file: file.rows > 1).serialize()
    assert Split.deserialize(part).row_count() == 5
    assert sorted(lab.rows(table.read(splits=[part]))) == [(0, 2), (1, 2), (2, 2)]


def test_another_format_is_refused(lab: Lab) -> None:
    table = lab.make("t")
    lab.write(table, 0, [(1, 1)])
    (split,) = table.splits()
    with pytest.raises(StreamhouseError, match="format 1/1/77 cannot be read"):
        SplitFrame.parse(split[:24] + b"\0\0\0\x4d" + split[28:])
