"""Avro records to Arrow columns and back, also with the header of Confluent's registry."""

from __future__ import annotations

import datetime
import io
import json
import threading
from collections.abc import Iterator
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from streamhouse.errors import ConnectError, OptionError
from streamhouse.formats.registry import format_of

ROWS = pa.table(
    {
        "flag": pa.array([True, None]),
        "small": pa.array([-5, None], pa.int8()),
        "n": pa.array([2**63 - 1, None], pa.int64()),
        "d": pa.array([1.5, None], pa.float64()),
        "price": pa.array([Decimal("-12.50"), None], pa.decimal128(38, 2)),
        "name": pa.array(["é", None]),
        "raw": pa.array([b"\xff", None]),
        "day": pa.array([datetime.date(2024, 2, 29), None]),
        "time": pa.array([datetime.time(1, 2, 3, 500000), None], pa.time32("ms")),
        "at": pa.array([datetime.datetime(2024, 5, 1, 12, 0, 0, 120000), None], pa.timestamp("ms")),
        "zoned": pa.array([1, None], pa.timestamp("us", "UTC")),
        "list": pa.array([[1, None], None], pa.list_(pa.int32())),
        "map": pa.array([[("x", 1.5)], None], pa.map_(pa.string(), pa.float64())),
        "row": pa.array([{"a": [{"b": "c"}]}, None]),
    }
).to_batches()[0]


def test_written_rows_are_read_as_they_were() -> None:
    records = format_of("avro").encoder(ROWS.schema, {}, "avro.").encode(ROWS).to_pylist()
    found = format_of("avro").decoder(ROWS.schema, {}, "avro.").decode([*records, None])
    assert not found.bad
    assert found.rows.equals(ROWS)


def test_records_of_another_schema_are_bad() -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())])
    decoder = format_of("avro").decoder(schema, {}, "avro.")
    encoder = format_of("avro").encoder(schema, {}, "avro.")
    (good,) = encoder.encode(pa.record_batch({"id": [1], "name": ["a"]}, schema=schema)).to_pylist()
    assert good is not None
    found = decoder.decode([b"", good, good + b"x", b"\xff\xff"])
    assert found.rows.to_pylist() == [{"id": 1, "name": "a"}]
    assert [one.index for one in found.bad] == [0, 2, 3]
    assert "1 bytes are left" in found.bad[1].reason
    with pytest.raises(OptionError, match="must be STRING"):
        format_of("avro").decoder(pa.schema([("m", pa.map_(pa.int32(), pa.int32()))]), {}, "avro.")


class Answers(BaseHTTPRequestHandler):
    """The two requests of the registry's protocol that are used."""

    schemas: list[str] = []

    def do_GET(self) -> None:
        number = int(self.path.rpartition("/")[2])
        known = number < len(self.schemas)
        self._send(200 if known else 404, {"schema": self.schemas[number]} if known else {})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.headers["Authorization"] != "Basic dTpw":
            self._send(401, {})
            return
        assert self.path == "/subjects/orders-value/versions"
        self.schemas.append(body["schema"])
        self._send(200, {"id": len(self.schemas) - 1})

    def _send(self, code: int, answer: Any) -> None:
        self.send_response(code)
        self.end_headers()
        self.wfile.write(json.dumps(answer).encode())

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def url() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join(10)
    server.server_close()


def test_confluents_registry(url: str) -> None:
    where = "avro-confluent."
    form = format_of("avro-confluent")
    login = {"url": url, "subject": "orders-value", "basic-auth.user-info": "u:p"}
    records = form.encoder(ROWS.schema, login, where).encode(ROWS).to_pylist()
    assert form.decoder(ROWS.schema, {"url": url}, where).decode(records).rows.equals(ROWS)
    # Another writer has other fields, in another order.
    other = {
        "type": "record", "name": "Other",
        "fields": [
            {"name": "extra", "type": "string"},
            {"name": "n", "type": "int"},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        ],
    }  # fmt: skip
    Answers.schemas.append(json.dumps(other))
    number = len(Answers.schemas) - 1
    instant = datetime.datetime(2024, 5, 1, tzinfo=datetime.UTC)
    out = io.BytesIO(b"\x00" + number.to_bytes(4, "big"))
    out.seek(5)
    fastavro.schemaless_writer(out, other, {"extra": "x", "n": 7, "at": instant})
    schema = pa.schema([("n", pa.int64()), ("at", pa.timestamp("ms")), ("absent", pa.string())])
    missing = b"\x00" + (9999).to_bytes(4, "big")
    found = form.decoder(schema, {"url": url}, where).decode([out.getvalue(), missing, b"x"])
    assert found.rows.to_pylist() == [{"n": 7, "at": datetime.datetime(2024, 5, 1), "absent": None}]
    assert "does not have its schema" in found.bad[0].reason
    assert "no header" in found.bad[1].reason


def test_errors_of_the_registry(url: str) -> None:
    form, where = format_of("avro-confluent"), "avro-confluent."
    with pytest.raises(OptionError, match="'avro-confluent.url' is missing"):
        form.decoder(ROWS.schema, {}, where)
    with pytest.raises(OptionError, match="'avro-confluent.subject' is missing"):
        form.encoder(ROWS.schema, {"url": url}, where)
    with pytest.raises(ConnectError, match="401"):
        form.encoder(ROWS.schema, {"url": url, "subject": "orders-value"}, where).encode(
            ROWS
        ).to_pylist()
    record = b"\x00\x00\x00\x00\x01x"
    with pytest.raises(ConnectError, match="check the 'url'"):
        form.decoder(ROWS.schema, {"url": "http://127.0.0.1:9"}, where).decode([record])
