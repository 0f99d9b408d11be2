"""The format `avro`: values without a header, by the schema that the columns have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import fastavro
import pyarrow as pa

from streamhouse.formats.avro.codec import AvroDecoder, AvroEncoder
from streamhouse.formats.avro.schema import record_schema
from streamhouse.formats.base import Format
from streamhouse.options import Option, check_known, choice


class _Avro(Format):
    name = "avro"
    options = (
        Option(
            "encoding", "`binary`", "the encoding of values; that of JSON is not supported",
            "binary",
        ),
    )  # fmt: skip

    def decoder(self, schema: pa.Schema, options: Mapping[str, str], where: str) -> AvroDecoder:
        return AvroDecoder(schema, _framing(schema, options, where))

    def encoder(self, schema: pa.Schema, options: Mapping[str, str], where: str) -> AvroEncoder:
        return AvroEncoder(schema, _framing(schema, options, where))


def _framing(schema: pa.Schema, options: Mapping[str, str], where: str) -> NoFraming:
    check_known([where + key for key in options], [f"{where}encoding"], "format avro")
    choice(f"{where}encoding", options.get("encoding", "binary"), ("binary",))
    return NoFraming(record_schema(schema))


class NoFraming:
    """Records of one known schema."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self._schema = schema
        self._parsed: Any = None

    def __getstate__(self) -> dict[str, Any]:
        return {"_schema": self._schema, "_parsed": None}

    def writer_schema(self, record: bytes) -> tuple[Any, int]:
        if self._parsed is None:
            self._parsed = fastavro.parse_schema(self._schema)
        return self._parsed, 0

    def header(self, schema: dict[str, Any]) -> bytes:
        return b""


FORMAT = _Avro()
