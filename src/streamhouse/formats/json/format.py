"""The format `json`."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from streamhouse.formats.base import Format
from streamhouse.formats.json.decode import JsonDecoder
from streamhouse.formats.json.encode import JsonEncoder
from streamhouse.formats.json.options import OPTIONS, JsonOptions


class _Json(Format):
    name = "json"
    options = OPTIONS

    def decoder(self, schema: pa.Schema, options: Mapping[str, str], where: str) -> JsonDecoder:
        return JsonDecoder(schema, JsonOptions.parse(options, where))

    def encoder(self, schema: pa.Schema, options: Mapping[str, str], where: str) -> JsonEncoder:
        return JsonEncoder(schema, JsonOptions.parse(options, where))


FORMAT = _Json()
