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
from tests.waiting import DEADLINE_S

from streamhouse.errors import ConnectError, OptionError, RecordError
from streamhouse.formats.base import FormatChoice

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
    records = FormatChoice("avro", {}, "avro.").encoder(ROWS.schema).encode(ROWS).to_pylist()
    found = FormatChoice("avro", {}, "avro.").decoder(ROWS.schema).decode([*records, None])
    assert not found.bad
    assert found.rows.equals(ROWS)


def test_records_of_another_schema_are_bad() -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())])
    decoder = FormatChoice("avro", {}, "avro.").decoder(schema)
    encoder = FormatChoice("avro", {}, "avro.").encoder(schema)
    (good,) = encoder.encode(pa.record_batch({"id": [1], "name": ["a"]}, schema=schema)).to_pylist()
    assert good is not None
    found = decoder.decode([b"", good, good + b"x", b"\xff\xff"])
    assert found.rows.to_pylist() == [{"id": 1, "name": "a"}]
    assert [one.index for one in found.bad] == [0, 2, 3]
    assert "1 bytes are left" in found.bad[1].reason
    with pytest.raises(OptionError, match="must be STRING"):
        FormatChoice("avro", {}, "avro.").decoder(
            pa.schema([("m", pa.map_(pa.int32(), pa.int32()))])
        )


CUSTOMER = {
    "type": "record", "name": "Customer", "namespace": "shop",
    "fields": [{"name": "id", "type": {"type": "string", "logicalType": "uuid"}}],
}  # fmt: skip
REFERRING = {
    "type": "record", "name": "Order",
    "fields": [{"name": "by", "type": "shop.Customer"}, {"name": "to", "type": "shop.Customer"}],
}  # fmt: skip


class Answers(BaseHTTPRequestHandler):
    """The two requests of the registry's protocol that are used."""

    schemas: list[str] = []

    def do_GET(self) -> None:
        if self.path == "/subjects/customer/versions/3":
            self._send(200, {"schema": json.dumps(CUSTOMER), "id": 900, "version": 3})
            return
        if self.path == "/schemas/ids/901":
            reference = {"name": "shop.Customer", "subject": "customer", "version": 3}
            self._send(200, {"schema": json.dumps(REFERRING), "references": [reference]})
            return
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
    thread.join(DEADLINE_S)
    server.server_close()


def confluent(options: dict[str, str]) -> FormatChoice:
    return FormatChoice("avro-confluent", options, "avro-confluent.")


def test_confluents_registry(url: str) -> None:
    login = {"url": url, "subject": "orders-value", "basic-auth.user-info": "u:p"}
    records = confluent(login).encoder(ROWS.schema).encode(ROWS).to_pylist()
    assert confluent({"url": url}).decoder(ROWS.schema).decode(records).rows.equals(ROWS)
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
    found = confluent({"url": url}).decoder(schema).decode([out.getvalue(), missing, b"x"])
    assert found.rows.to_pylist() == [{"n": 7, "at": datetime.datetime(2024, 5, 1), "absent": None}]
    assert "does not have its schema" in found.bad[0].reason
    assert "no header" in found.bad[1].reason


def test_errors_of_the_registry(url: str) -> None:
    with pytest.raises(OptionError, match="'avro-confluent.url' is missing"):
        confluent({}).decoder(ROWS.schema)
    with pytest.raises(OptionError, match="'avro-confluent.subject' is missing"):
        confluent({"url": url}).encoder(ROWS.schema)
    with pytest.raises(ConnectError, match="401"):
        confluent({"url": url, "subject": "orders-value"}).encoder(ROWS.schema).encode(
            ROWS
        ).to_pylist()
    record = b"\x00\x00\x00\x00\x01x"
    with pytest.raises(ConnectError, match="check the 'url'"):
        confluent({"url": "http://127.0.0.1:9"}).decoder(ROWS.schema).decode([record])


def test_schemas_that_refer_to_others_and_texts_of_uuids(url: str) -> None:
    """A logical type `uuid` does not change the text."""
    text = "0000000A-0000-0000-0000-000000000001"
    record = b"\x00" + (901).to_bytes(4, "big") + 2 * (b"\x48" + text.encode())
    customer = pa.struct([("id", pa.string())])
    schema = pa.schema([("by", customer), ("to", customer)])
    found = FormatChoice("avro-confluent", {"url": url}, "").decoder(schema).decode([record])
    assert not found.bad
    assert found.rows.to_pylist() == [{"by": {"id": text}, "to": {"id": text}}]


class Strange(BaseHTTPRequestHandler):
    """A server that is no registry, as a proxy or a wrong path is."""

    code, answer = 200, b""

    def do_GET(self) -> None:
        self.send_response(self.code)
        self.end_headers()
        self.wfile.write(self.answer)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.mark.parametrize(
    ("code", "answer"),
    [
        (200, b"<html>Sign in</html>"),
        (200, b"{}"),
        (404, b"<html>Not found</html>"),
        (404, b'{"error_code": 404, "message": "HTTP 404 Not Found"}'),
    ],
)
def test_what_is_no_registry_makes_no_record_bad(code: int, answer: bytes) -> None:
    Strange.code, Strange.answer = code, answer
    with HTTPServer(("127.0.0.1", 0), Strange) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        options = {"url": f"http://127.0.0.1:{server.server_port}"}
        decoder = FormatChoice("avro-confluent", options, "").decoder(ROWS.schema)
        with pytest.raises(ConnectError):
            decoder.decode([b"\x00\x00\x00\x00\x01x"])
        thread.join(DEADLINE_S)


@pytest.mark.parametrize(
    ("column", "avro", "value"),
    [
        (pa.float32(), "double", 1e39),
        (pa.struct([pa.field("a", pa.int32(), nullable=False)]),
         {"type": "record", "name": "x", "fields": []}, {}),
        (pa.list_(pa.field("item", pa.int32(), nullable=False)),
         {"type": "array", "items": ["null", "int"]}, [None]),
        (pa.map_(pa.string(), pa.field("value", pa.int32(), nullable=False)),
         {"type": "map", "values": ["null", "int"]}, {"k": None}),
    ],
)  # fmt: skip
def test_values_that_do_not_fit_are_bad(
    url: str, column: pa.DataType, avro: Any, value: Any
) -> None:
    writer = {"type": "record", "name": "r", "fields": [{"name": "c", "type": avro}]}
    Answers.schemas.append(json.dumps(writer))
    out = io.BytesIO()
    out.write(b"\x00" + (len(Answers.schemas) - 1).to_bytes(4, "big"))
    fastavro.schemaless_writer(out, writer, {"c": value})
    decoder = FormatChoice("avro-confluent", {"url": url}, "").decoder(pa.schema([("c", column)]))
    found = decoder.decode([out.getvalue()])
    assert found.rows.num_rows == 0 and found.bad[0].reason.startswith("column 'c': ")


def test_the_greatest_values_are_read() -> None:
    rows = pa.record_batch(
        {
            "price": pa.array([Decimal("9" * 38), Decimal("-" + "9" * 38)], pa.decimal128(38, 0)),
            "rate": pa.array([3.4028234663852886e38, float("-inf")], pa.float32()),
        }
    )
    records = FormatChoice("avro", {}, "avro.").encoder(rows.schema).encode(rows).to_pylist()
    assert FormatChoice("avro", {}, "avro.").decoder(rows.schema).decode(records).rows.equals(rows)


def test_what_avro_cannot_hold_is_an_error() -> None:
    schema = pa.schema([("at", pa.timestamp("ms"))])
    rows = pa.record_batch([pa.array([253_402_300_800_000], pa.timestamp("ms"))], schema=schema)
    with pytest.raises(RecordError, match="cannot be written as Avro"):
        FormatChoice("avro", {}, "avro.").encoder(schema).encode(rows)
    inner = pa.struct([("c", pa.int32())])
    twice = pa.schema([("a", pa.struct([("b", inner)])), ("a_b", inner)])
    with pytest.raises(OptionError, match=r"redefined named type.*rename a column"):
        FormatChoice("avro", {}, "avro.").encoder(twice)
