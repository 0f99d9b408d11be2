"""The `print` connector."""

import datetime
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pyarrow as pa

from streamhouse.connectors.base import (
    CollectingWriter,
    Connector,
    Sink,
    SinkCommitter,
    WrittenBatch,
    collected_rows,
)
from streamhouse.connectors.specs import SinkSpec
from streamhouse.options import DeclaredOptions, OptionValues
from streamhouse.source import ROW_KIND, with_kinds
from streamhouse.sql.functions.java_numbers import java_double, java_float
from streamhouse.sql.plan import Capabilities

_Text = Callable[[Any], str]


def row_texts(batch: pa.RecordBatch) -> Iterator[str]:
    """A text for each row of a batch, which may have a column `rowkind`."""
    columns = [batch.column(name) for name in batch.schema.names if name != ROW_KIND]
    texts = [map(_text_of(column.type), column.to_pylist()) for column in columns]
    kinds = with_kinds(batch).column(ROW_KIND).to_pylist()
    for kind, *values in zip(kinds, *texts, strict=True):
        yield f"{kind}[{', '.join(values)}]"


def _text_of(kind: pa.DataType) -> _Text:
    plain = _plain(kind)
    return lambda value: "null" if value is None else plain(value)


def _plain(kind: pa.DataType) -> _Text:
    if pa.types.is_boolean(kind):
        return lambda value: "true" if value else "false"
    if pa.types.is_float64(kind):
        return java_double
    if pa.types.is_float32(kind):
        return java_float
    if pa.types.is_decimal(kind):
        return "{:f}".format
    if pa.types.is_timestamp(kind):
        return partial(_timestamp, zone="" if kind.tz is None else "Z")
    if pa.types.is_time(kind):
        return _time
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return _signed_bytes
    if pa.types.is_map(kind):
        return partial(_map, key=_text_of(kind.key_type), item=_text_of(kind.item_type))
    if pa.types.is_list(kind):
        return partial(_list, item=_text_of(kind.value_type))
    if pa.types.is_struct(kind):
        return partial(_row, fields=[(field.name, _text_of(field.type)) for field in kind])
    return str


def _timestamp(value: datetime.datetime, zone: str) -> str:
    # LocalDateTime.toString leaves out seconds that are zero, Instant.toString does not.
    time = _time(value.time(), always_seconds=bool(zone))
    return f"{value.date().isoformat()}T{time}{zone}"


def _time(value: datetime.time, always_seconds: bool = False) -> str:
    if value.microsecond:
        return value.isoformat("microseconds" if value.microsecond % 1000 else "milliseconds")
    return value.isoformat("seconds" if value.second or always_seconds else "minutes")


def _signed_bytes(value: bytes) -> str:
    return f"[{', '.join(str(byte - 256 if byte > 127 else byte) for byte in value)}]"


def _map(value: list[tuple[Any, Any]], key: _Text, item: _Text) -> str:
    return f"{{{', '.join(f'{key(k)}={item(v)}' for k, v in value)}}}"


def _list(value: list[Any], item: _Text) -> str:
    return f"[{', '.join(map(item, value))}]"


def _row(value: dict[str, Any], fields: list[tuple[str, _Text]]) -> str:
    return f"+I[{', '.join(text(value[name]) for name, text in fields)}]"


_DECLARED = DeclaredOptions.of(__package__)


class _Print(Connector, declared=_DECLARED):
    name = "print"
    capabilities = Capabilities(stream=False, lookup=False, scan=False, merges=False)

    def sink(self, spec: SinkSpec) -> Sink:
        values = OptionValues(self.options, spec.options)
        prefix = values["print-identifier"]
        committer = PrintCommitter(f"{prefix}> " if prefix else "", values["standard-error"])
        return Sink(lambda *_: CollectingWriter(), lambda _: committer)


class PrintCommitter(SinkCommitter):
    """Prints a micro-batch once its tasks have ended. A replayed batch is printed again.

    All rows pass through the driver, so it is not for large results.
    """

    def __init__(self, prefix: str, to_stderr: bool) -> None:
        self._prefix = prefix
        self._to_stderr = to_stderr

    def put(self, written: WrittenBatch) -> bool:
        out = sys.stderr if self._to_stderr else sys.stdout
        for batch in collected_rows(written.messages):
            out.write("".join(f"{self._prefix}{text}\n" for text in row_texts(batch)))
        out.flush()
        return True


CONNECTOR = _Print()
