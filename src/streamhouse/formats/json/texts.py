"""Encodes all rows of a batch at once, for types that Arrow writes with the same text as orjson."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from streamhouse.formats import times

_Texts: TypeAlias = Callable[[pa.Array], tuple[pa.Array, str]]
"""From the values of a column to their JSON, null for null, without the quotes on both sides."""

_QUOTE = '"'
_ESCAPED = r'["\\\x00-\x1f]'
_DECIMAL_SCALE = 6
"""Up to this scale, Arrow never writes a decimal with an exponent."""


def objects(rows: pa.RecordBatch, names: Sequence[str], standard: str) -> pa.BinaryArray | None:
    """A JSON object with the columns `names` of each row; None if a type has no text here."""
    if not names:
        return None
    columns: list[pa.Array | str] = []
    for number, name in enumerate(names):
        texts_of = _texts_of(rows.schema.field(name).type, standard)
        if texts_of is None:
            return None
        columns.append(f"{',' if number else '{'}{orjson.dumps(name).decode()}:")
        texts, quote = texts_of(rows.column(name))
        if quote and texts.null_count:
            texts, quote = pc.binary_join_element_wise(quote, texts, quote, ""), ""
        columns += [quote, texts.fill_null("null"), quote] if quote else [texts.fill_null("null")]
    return pc.binary_join_element_wise(*columns, "}", "").cast(pa.binary())


def _texts_of(kind: pa.DataType, standard: str) -> _Texts | None:
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return _plain
    if pa.types.is_decimal(kind) and 0 <= kind.scale <= _DECIMAL_SCALE:
        return _plain
    if pa.types.is_string(kind):
        return _strings
    if pa.types.is_date(kind):
        return lambda array: (array.cast(pa.string()), _QUOTE)
    if pa.types.is_timestamp(kind):
        return lambda array: (times.timestamp_texts(array, standard), _QUOTE)
    return None


def _plain(array: pa.Array) -> tuple[pa.Array, str]:
    return array.cast(pa.string()), ""


def _strings(array: pa.Array) -> tuple[pa.Array, str]:
    escaped = pc.match_substring_regex(array, _ESCAPED)
    if not pc.any(escaped).as_py():
        return array, _QUOTE
    texts = [
        None if value is None else orjson.dumps(value).decode()
        for value in array.filter(escaped).to_pylist()
    ]
    quoted = pc.binary_join_element_wise(_QUOTE, array, _QUOTE, "")
    found = pc.replace_with_mask(quoted, escaped.fill_null(False), pa.array(texts, pa.string()))
    return found, ""
