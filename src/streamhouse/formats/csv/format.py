"""The format `csv`: one record is one line."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from streamhouse.errors import OptionError
from streamhouse.formats import times
from streamhouse.formats.base import Decoded, Format, ParsedRows, RecordError
from streamhouse.formats.json.encode import JsonEncoder
from streamhouse.formats.json.exact import Convert, JsonOptions, converter
from streamhouse.options import DeclaredOptions, OptionValues, of_option
from streamhouse.source import ROW_KIND
from streamhouse.types import flink_type

OPTIONS = DeclaredOptions.of(__package__).options
_ESCAPES = {r"\t": "\t", r"\u0001": "\u0001"}


_LIMIT = 1 << 27


@dataclass(frozen=True)
class CsvOptions:
    """The checked CSV options of a table; `quote` and `escape` are None if there are none."""

    delimiter: str = ","
    quote: str | None = '"'
    escape: str | None = None
    comments: bool = of_option("allow-comments", False)
    array_delimiter: str = of_option("array-element-delimiter", ";")
    null_literal: str | None = of_option("null-literal", None)
    ignore_parse_errors: bool = of_option("ignore-parse-errors", False)

    @classmethod
    def parse(cls, values: OptionValues) -> Self:
        """Raises `OptionError`."""
        where = values.before

        def character(key: str) -> str | None:
            text: str | None = values[key]
            if text is None:
                return None
            text = _ESCAPES.get(text, text)
            if len(text) != 1 or text in "\r\n":
                raise OptionError(f"option '{where}{key}' must be one character, not '{text}'")
            return text

        quote = character("quote-character")
        if values["disable-quote-character"]:
            if "quote-character" in values:
                raise OptionError(
                    f"options '{where}quote-character' and '{where}disable-quote-character' "
                    "exclude each other; leave one of them out"
                )
            quote = None
        delimiter = character("field-delimiter")
        assert delimiter is not None
        escape = character("escape-character")
        if escape is not None and escape == quote:
            raise OptionError(
                f"option '{where}escape-character' is also the quote character; leave it out: a "
                "quote in a field is doubled"
            )
        if delimiter in (quote, escape):
            raise OptionError(
                f"option '{where}field-delimiter' is also the quote or the escape character; "
                "choose another one"
            )
        return values.record(cls, delimiter=delimiter, quote=quote, escape=escape)


class CsvDecoder:
    """A `Decoder` of lines whose fields are the columns in their order."""

    def __init__(self, schema: pa.Schema, values: OptionValues) -> None:
        self._schema, self._options = schema, CsvOptions.parse(values)
        check_columns(schema)
        self._converters = [_converter(field, self._options) for field in schema]

    def decode(self, records: Sequence[bytes | None]) -> Decoded:
        found = self._fields(records)
        columns = list(zip(*found.rows, strict=True)) or [()] * len(self._schema)
        arrays = [self._column(n, values, found) for n, values in enumerate(columns)]
        return found.decoded(arrays, self._schema, self._options.ignore_parse_errors)

    def _fields(self, records: Sequence[bytes | None]) -> ParsedRows:
        """The fields of each row."""
        width = len(self._schema)
        try:
            texts: list[str] | None = [record.decode() for record in records]  # type: ignore[union-attr]
        except (UnicodeDecodeError, AttributeError):
            texts = None
        if texts is not None:
            plain = plain_rows(texts, self._options, width)
            if plain is not None:
                return ParsedRows(plain, None)
        found = ParsedRows([], [])
        found.read(records, self._row_of)
        return found

    def _row_of(self, record: bytes) -> list[list[str]]:
        """The row of a record, none for a comment; raises `ValueError`."""
        fields = fields_of(record.decode(), self._options)
        return [] if fields is None else [self._padded(fields)]

    def _padded(self, fields: list[str]) -> list[str]:
        width = len(self._schema)
        if len(fields) == width:
            return fields
        if not width and fields == [""]:
            return []
        if self._options.ignore_parse_errors:
            return (fields + [""] * width)[:width]
        raise ValueError(
            f"{len(fields)} fields, but the table has {width} columns "
            f"({', '.join(self._schema.names)})"
        )

    def _column(self, number: int, values: Sequence[str], found: ParsedRows) -> pa.Array:
        """Convert a column; reports the records whose value is wrong."""
        field, convert = self._schema.field(number), self._converters[number]
        texts = pa.array(values, pa.string())
        for word in _null_words(field, self._options):
            texts = pc.if_else(pc.equal(texts, word), pa.scalar(None, pa.string()), texts)
        array = _cast(texts, field.type)
        if array is None:
            array = found.converted(field, texts.to_pylist(), lambda _, value: convert(value))
        found.check_nulls(field, array, "null")
        return array


def check_columns(schema: pa.Schema) -> None:
    """Raise `OptionError` for a column that CSV cannot hold."""
    for field in schema:
        kind = field.type
        nested = [kind.value_type] if pa.types.is_list(kind) else [kind]
        if any(pa.types.is_nested(item) for item in nested):
            raise OptionError(
                f"format csv cannot hold {flink_type(kind)} (column '{field.name}'); use json"
            )


def _null_words(field: pa.Field, options: CsvOptions) -> set[str]:
    words = set() if options.null_literal is None else {options.null_literal}
    may_be_empty = pa.types.is_string(field.type) or pa.types.is_binary(field.type)
    return words if may_be_empty else words | {""}


def _cast(texts: pa.Array, kind: pa.DataType) -> pa.Array | None:
    """All values at once; None if they must be converted one by one."""
    if pa.types.is_string(kind):
        return texts
    if pa.types.is_timestamp(kind):
        return times.parse_timestamps(texts, kind, times.SQL)
    if not (pa.types.is_integer(kind) or pa.types.is_decimal(kind) or pa.types.is_float64(kind)):
        return None
    # PyArrow also reads hexadecimal numbers, `inf` and `nan`.
    if pc.any(pc.match_substring_regex(texts, "[^0-9.eE+-]")).as_py():
        return None
    try:
        array = texts.cast(kind)
    except pa.ArrowInvalid:
        return None
    if pa.types.is_float64(kind) and pc.any(pc.is_inf(array)).as_py():
        return None
    return array


def _converter(field: pa.Field, options: CsvOptions) -> Convert:
    convert = converter(field.type, JsonOptions(ignore_parse_errors=options.ignore_parse_errors))
    if not pa.types.is_list(field.type):
        return convert

    def elements(value: str | None) -> Any:
        if value is None:
            return None
        parts: list[str | None] = list(value.split(options.array_delimiter))
        return convert([None if part == options.null_literal else part for part in parts])

    return elements


def plain_rows(texts: Sequence[str], options: CsvOptions, width: int) -> list[list[str]] | None:
    """The fields of records without quotes and escapes; None if they need `fields_of`."""
    joined = "\n".join(texts)
    special = [mark for mark in (options.quote, options.escape, "\r") if mark is not None]
    if options.comments or any(mark in joined for mark in special):
        return None
    if joined.count("\n") != len(texts) - 1:
        return None
    rows = [text.split(options.delimiter) for text in texts]
    return rows if all(len(row) == width for row in rows) else None


def fields_of(text: str, options: CsvOptions) -> list[str] | None:
    """The fields of one record; None for a comment. Raises `ValueError`."""
    if options.comments and text.startswith("#"):
        return None
    csv.field_size_limit(_LIMIT)
    settings: dict[str, Any] = {"quoting": csv.QUOTE_NONE}
    if options.quote is not None:
        settings = {"quotechar": options.quote, "doublequote": True}
    # A line break at the end belongs to the file, not to the record.
    line = text.removesuffix("\n").removesuffix("\r")
    reader = csv.reader(
        [line], delimiter=options.delimiter, escapechar=options.escape, strict=True, **settings
    )
    try:
        rows = list(reader)
    except csv.Error as error:
        raise ValueError(f"not valid CSV: {error}") from None
    return rows[0] if rows and rows[0] else [""]


class CsvEncoder:
    """An `Encoder` of lines; values are written as in JSON, and quoted where needed."""

    def __init__(self, schema: pa.Schema, values: OptionValues) -> None:
        self._options = options = CsvOptions.parse(values)
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


FORMAT = Format("csv", OPTIONS, CsvDecoder, CsvEncoder)
