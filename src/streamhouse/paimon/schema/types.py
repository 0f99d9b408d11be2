"""Converts column types between Flink's spelling, Paimon's JSON form and Arrow."""

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, TypeAlias

import pyarrow as pa

from streamhouse.errors import SqlError, TableError
from streamhouse.sql.parser.query_parser import lex
from streamhouse.sql.parser.token_cursor import Cursor
from streamhouse.sql.parser.types import parse_element
from streamhouse.sql.plan import Column
from streamhouse.sql.text import Script
from streamhouse.sql.types import base, digits, parts, scale
from streamhouse.types import PLAIN

JsonType: TypeAlias = "str | dict[str, Any]"


def parse(text: str, nullable: bool = True) -> JsonType:
    """Paimon's JSON form of a type in Flink's spelling; `TableError` if there is no such type.

    The fields of each `ROW` get ids from 0; the catalog assigns new ones.
    """
    return _json_form(_spelling(text.strip()), nullable)


@lru_cache(maxsize=4096)
def _spelling(text: str) -> str:
    """A type as the parser of SQL spells it, perhaps with NOT NULL."""
    script = Script(text)
    try:
        cursor = Cursor(script, lex(script))
        kind = parse_element(cursor)
        cursor.end("the end of the type")
    except SqlError as error:
        raise TableError(f"type {text} is not a column type: {error.message}") from None
    return kind


def _json_form(text: str, nullable: bool = True) -> JsonType:
    # A type that must not be null stays so.
    nullable = nullable and not text.endswith(" NOT NULL")
    kind, suffix = text.removesuffix(" NOT NULL"), "" if nullable else " NOT NULL"
    word, inner = base(kind), [(name, _json_form(part)) for name, part in parts(kind)]
    if word == "ROW":
        fields = [{"id": at, "name": name, "type": each} for at, (name, each) in enumerate(inner)]
        return {"type": word + suffix, "fields": fields, "nullable": nullable}
    if inner:
        return {"type": word + suffix, **dict(inner), "nullable": nullable}
    if word == "TIMESTAMP_LTZ":
        kind = f"TIMESTAMP({digits(kind)}) WITH LOCAL TIME ZONE"
    return kind + suffix


def flink_spelling(text: str) -> str:
    """Convert a type from Paimon's spelling to Flink's, without its own nullability."""
    plain = re.sub(r"\s+NOT NULL$", "", text.strip())
    return re.sub(r"\bTIMESTAMP\((\d)\) WITH LOCAL TIME ZONE", r"TIMESTAMP_LTZ(\1)", plain)


def flink_text(parsed: JsonType) -> str:
    """Flink's spelling of a type in Paimon's JSON form, without its own nullability."""
    return _text_with_nulls(parsed).removesuffix(" NOT NULL")


def _text_with_nulls(parsed: JsonType) -> str:
    if isinstance(parsed, str):
        suffix = " NOT NULL" if parsed.endswith(" NOT NULL") else ""
        return flink_spelling(parsed) + suffix
    word = parsed["type"].removesuffix(" NOT NULL")
    if word == "ROW":
        quoted = ((item["name"].replace("`", "``"), item["type"]) for item in parsed["fields"])
        inner = ", ".join(f"`{name}` {_text_with_nulls(kind)}" for name, kind in quoted)
    else:
        sides = ("key", "value") if word == "MAP" else ("element",)
        inner = ", ".join(_text_with_nulls(parsed[side]) for side in sides)
    return f"{word}<{inner}>" + (" NOT NULL" if parsed["type"].endswith(" NOT NULL") else "")


def arrow_type(parsed: JsonType) -> pa.DataType:
    """The Arrow type in which Paimon's Rust core returns a column of this type."""
    if isinstance(parsed, str):
        text = parsed.removesuffix(" NOT NULL")
        name = base(text)
        if name == "DECIMAL":
            return pa.decimal128(digits(text), scale(text))
        if name == "TIMESTAMP":
            unit = ("s", "ms", "us", "ns")[(digits(text) + 2) // 3]
            return pa.timestamp(unit, tz="UTC" if "LOCAL" in text else None)
        return PLAIN[name]
    kind = parsed["type"].removesuffix(" NOT NULL")
    if kind == "ARRAY":
        return pa.list_(_arrow_field("element", parsed["element"]))
    if kind in ("MAP", "MULTISET"):
        key = arrow_type(parsed["key"] if kind == "MAP" else parsed["element"])
        value = _arrow_field("value", parsed["value"] if kind == "MAP" else "INT NOT NULL")
        return pa.map_(pa.field("key", key, nullable=False), value)
    return pa.struct([_arrow_field(item["name"], item["type"]) for item in parsed["fields"]])


def arrow_schema(columns: Iterable[Column]) -> pa.Schema:
    """The Arrow schema in which Paimon's Rust core returns columns."""
    return pa.schema(
        pa.field(column.name, arrow_type(parse(column.type)), nullable=column.nullable)
        for column in columns
    )


def _arrow_field(name: str, parsed: JsonType) -> pa.Field:
    text = parsed if isinstance(parsed, str) else parsed["type"]
    return pa.field(name, arrow_type(parsed), nullable=not text.endswith("NOT NULL"))
