"""The format `csv`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson
import pyarrow as pa

from streamhouse.formats.base import Format, RecordError
from streamhouse.formats.csv.decode import OPTIONS, CsvDecoder, CsvOptions, check_columns
from streamhouse.formats.json.encode import JsonEncoder
from streamhouse.formats.json.exact import JsonOptions
from streamhouse.source import ROW_KIND


class _Csv(Format):
    name = "csv"
    options = OPTIONS

    def decoder(self, schema: pa.Schema, options: Mapping[str, str], where: str) -> CsvDecoder:
        return CsvDecoder(schema, CsvOptions.parse(options, where))

    def encoder(self, schema: pa.Schema, options: Mapping[str, str], where: str) -> CsvEncoder:
        return CsvEncoder(schema, CsvOptions.parse(options, where))


FORMAT = _Csv()


class CsvEncoder:
    """An `Encoder` of lines; values are written as in JSON, and quoted where needed."""

    changelog = False

    def __init__(self, schema: pa.Schema, options: CsvOptions) -> None:
        self._options = options
        self._values = JsonEncoder(schema, JsonOptions())
        own = pa.schema([field for field in schema if field.name != ROW_KIND])
        check_columns(own)
        special = [options.delimiter, "\n", "\r", *filter(None, (options.quote, options.escape))]
        self._special = special + (["#"] if options.comments else [])

    def encode(self, rows: pa.RecordBatch) -> pa.BinaryArray:
        delimiter = self._options.delimiter
        records = [
            delimiter.join(map(self._field, one.values())).encode()
            for one in self._values.objects(rows)
        ]
        return pa.array(records, pa.binary())

    def _field(self, value: Any) -> str:
        if value is None:
            return self._options.null_literal or ""
        if isinstance(value, list):
            return self._quoted(self._options.array_delimiter.join(map(self._element, value)))
        return self._quoted(self._text(value), str_value=isinstance(value, str))

    def _element(self, value: Any) -> str:
        if value is None:
            return self._options.null_literal or ""
        text = self._text(value)
        if self._options.array_delimiter in text:
            raise RecordError(
                f"the array element {text[:60]!r} contains the 'array-element-delimiter' "
                f"'{self._options.array_delimiter}'; set another one"
            )
        return text

    def _text(self, value: Any) -> str:
        return value if isinstance(value, str) else orjson.dumps(value).decode()

    def _quoted(self, text: str, str_value: bool = False) -> str:
        # Quotes do not hide the literal of null from a reader, so such a text cannot be written.
        if str_value and text == self._options.null_literal:
            raise RecordError(
                f"the text '{text}' is also the 'null-literal' of the format csv; set another one"
            )
        if not any(mark in text for mark in self._special):
            return text
        quote, escape = self._options.quote, self._options.escape
        if quote is None:
            return self._escaped(text)
        text = text.replace(escape, escape * 2) if escape else text
        return f"{quote}{text.replace(quote, quote * 2)}{quote}"

    def _escaped(self, text: str) -> str:
        escape = self._options.escape
        if escape is None or "\n" in text or "\r" in text:
            raise RecordError(
                f"the text {text[:60]!r} needs quotes, but 'disable-quote-character' is set; use "
                "quotes, or set 'escape-character'"
            )
        return "".join(escape + one if one in self._special else one for one in text)
