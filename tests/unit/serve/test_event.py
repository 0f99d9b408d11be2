"""Events of change streams: encoding, and splitting into parts."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from streamhouse.errors import TooLargeError
from streamhouse.serve.formats.cells import iso
from streamhouse.serve.settings import StreamSettings
from streamhouse.serve.streams.event import (
    EncodingStopped,
    StreamEncoder,
    StreamEvent,
    StreamPosition,
    heartbeat,
    overflow,
)

COMMIT = StreamPosition.of("table", 17, 1_790_000_000_005)
SETTINGS = StreamSettings()
ENCODER = StreamEncoder("it", SETTINGS)


def batch(kinds: list[str], **columns: Any) -> pa.RecordBatch:
    return pa.record_batch({"rowkind": pa.array(kinds), **columns})


def changes(rows: pa.RecordBatch, settings: StreamSettings = SETTINGS) -> tuple[StreamEvent, ...]:
    encoder = StreamEncoder("it", settings)
    return encoder.events("changes", COMMIT, [rows], "it")


def test_sse_and_websocket_encoding() -> None:
    (event,) = changes(batch(["-U", "+U"], country=["Perú", "Perú"], orders=[1, 2]))
    time = "2026-09-21T14:13:20.005Z"
    assert iso(COMMIT.time_ms) == time
    was = '{"rowkind":"-U","country":"Perú","orders":1}'
    rows = f'[{was},{{"rowkind":"+U","country":"Perú","orders":2}}]'
    data = f'{{"snapshot":17,"time":"{time}","rows":{rows},"more":false}}'
    assert event.sse.decode() == f"id: {COMMIT.id}\nevent: changes\ndata: {data}\n\n"
    assert event.text == f'{{"type":"changes","id":"{COMMIT.id}",{data[1:]}'


def test_line_ends_in_values_are_escaped() -> None:
    (event,) = changes(batch(["+I"], text=["a\nb\r\n\nid: 1\u2028"]))
    assert event.sse.count(b"\n") == 4
    assert json.loads(event.text)["rows"][0]["text"] == "a\nb\r\n\nid: 1\u2028"


def test_reserved_column_names() -> None:
    (event,) = changes(batch(["+I"], snapshot=[1], snapshot_=[2], time=[3]))
    assert json.loads(event.data)["rows"] == [
        {"rowkind": "+I", "snapshot__": 1, "snapshot_": 2, "time": 3}
    ]


def test_ids_are_unique_per_commit_and_stable_across_processes() -> None:
    assert COMMIT.id == StreamPosition.of("table", 17, 1_790_000_000_005).id
    others = [("table", 17, 6), ("other", 17, COMMIT.time_ms), ("table", 18, COMMIT.time_ms)]
    stamps = {StreamPosition.of(*other).stamp for other in others} | {COMMIT.stamp}
    assert len(stamps) == 4
    assert COMMIT.id.startswith("17-") and COMMIT.stamp.isalnum()


def test_large_events_are_split_and_only_the_last_part_has_an_id() -> None:
    count = 12_345
    rows = batch(["+I"] * count, n=list(range(count)))
    parts = changes(rows)
    bodies = [json.loads(part.data) for part in parts]
    assert len(parts) >= 3
    assert [part.id for part in parts] == [None] * (len(parts) - 1) + [COMMIT.id]
    assert [body["more"] for body in bodies] == [True] * (len(parts) - 1) + [False]
    assert all(len(body["rows"]) <= 5_000 for body in bodies)
    assert [row["n"] for body in bodies for row in body["rows"]] == list(range(count))
    assert parts[0].sse.startswith(b"event: changes\n")
    assert "id" not in json.loads(parts[0].text)


def test_wide_rows_are_split_by_size() -> None:
    settings = StreamSettings(part_bytes=10_000)
    parts = changes(batch(["+I"] * 50, text=["x" * 1_000] * 50), settings)
    assert len(parts) > 4
    assert all(len(part.data) < 3 * settings.part_bytes for part in parts)


def test_small_batches_are_joined() -> None:
    pieces = [batch(["+I"], n=[number]) for number in range(100)]
    (event,) = ENCODER.events("snapshot", COMMIT, pieces)
    assert [row["n"] for row in json.loads(event.data)["rows"]] == list(range(100))


def test_nested_values_in_parts() -> None:
    lists = [[number, number + 1] if number % 3 else None for number in range(40)]
    structs = [{"a": number, "b": [str(number)]} for number in range(40)]
    maps = pa.array([[("k", number)] for number in range(40)], pa.map_(pa.string(), pa.int64()))
    rows = batch(["+I"] * 40, l=lists, s=structs, m=maps)
    parts = changes(rows, StreamSettings(part_rows=7))
    found = [row for part in parts for row in json.loads(part.data)["rows"]]
    assert len(parts) == 6
    assert [row["l"] for row in found] == lists
    assert [row["s"] for row in found] == structs
    assert [row["m"] for row in found] == [{"k": number} for number in range(40)]


def test_an_event_without_rows() -> None:
    (event,) = ENCODER.events("snapshot", StreamPosition.of("table", 0, 0))
    assert json.loads(event.data) == {"snapshot": None, "time": None, "rows": [], "more": False}


def test_an_updated_row_counts_once() -> None:
    kinds = ["-U", "+U", "-D", "+I"]
    (event,) = changes(batch(kinds, n=[1, 2, 3, 4]))
    assert (event.rows, event.changed) == (4, 3)


def test_too_many_rows_error_names_alternatives() -> None:
    rows = batch(["+I"] * 11, n=list(range(11)))
    with pytest.raises(TooLargeError, match="it has more than 10 rows.*last_id=latest"):
        changes(rows, StreamSettings(max_rows=10))


def test_encoding_stops_with_the_server() -> None:
    with pytest.raises(EncodingStopped):
        StreamEncoder("it", SETTINGS, lambda: True).events("x", COMMIT, [batch(["+I"], n=[1])])


def test_heartbeats_and_overflows() -> None:
    beat = heartbeat(COMMIT)
    assert json.loads(beat.text) == {
        "type": "heartbeat",
        "id": COMMIT.id,
        "snapshot": 17,
        "time": iso(COMMIT.time_ms),
    }
    end = overflow("too slow", "16-abc")
    assert end.sse == b'event: overflow\ndata: {"message":"too slow","last_id":"16-abc"}\n\n'


def test_no_unicode_line_ends_within_an_event() -> None:
    text = "".join(map(chr, [*range(1, 32), 0x85, 0x2028, 0x2029]))
    (event,) = changes(batch(["+I"], **{text: [text]}))
    assert len(event.sse.decode().splitlines()) == 4
    assert json.loads(event.data)["rows"] == [{"rowkind": "+I", text: text}]
