"""The format `csv`."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from streamhouse.formats.base import Format
from streamhouse.formats.csv.decode import CsvDecoder
from streamhouse.formats.csv.encode import CsvEncoder
from streamhouse.formats.csv.options import OPTIONS, CsvOptions


class _Csv(Format):
    name = "csv"
    options = OPTIONS

    def decoder(self, schema: pa.Schema, options: Mapping[str, str], where: str) -> CsvDecoder:
        return CsvDecoder(schema, CsvOptions.parse(options, where))

    def encoder(self, schema: pa.Schema, options: Mapping[str, str], where: str) -> CsvEncoder:
        return CsvEncoder(schema, CsvOptions.parse(options, where))


FORMAT = _Csv()
