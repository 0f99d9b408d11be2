"""Converts column types between Flink's spelling, Paimon's JSON form and Arrow."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import pyarrow as pa

from streamhouse.errors import TableError
from streamhouse.sql.plan import Column
from streamhouse.types import PLAIN

JsonType: TypeAlias = "str | dict[str, Any]"

_QUOTED = r"`(?:[^`]|``)*`|'(?:[^']|'')*'"
_PART = re.compile(rf"{_QUOTED}|[^`']")
_FIELD = re.compile(r"\s*(?P<name>`(?:[^`]|``)*`|[A-Za-z_][\w$-]*)(?P<kind>.*)", re.DOTALL)
_COMMENT = re.compile(r"(?P<kind>.*?)\s*'(?P<comment>(?:[^']|'')*)'\s*", re.DOTALL)
_NULLABILITY = re.compile(r"(?P<kind>.*?)\s+(?P<not>NOT\s+)?NULL", re.DOTALL | re.IGNORECASE)
_NESTED = re.compile(
    r"(?P<word>ARRAY|MULTISET|MAP|ROW)\s*(?P<open>[<(])(?P<parts>.*)(?P<close>[>)])",
    re.DOTALL | re.IGNORECASE,
)
_ATOMIC = re.compile(
    r"(?P<word>[A-Z_]+)(?:\s*\(\s*(?P<size>\d+)\s*(?:,\s*(?P<scale>\d+)\s*)?\))?"
    r"(?:\s+(?P<after>PRECISION|WITH LOCAL TIME ZONE|WITHOUT TIME ZONE))?"
)
_SYNONYMS = {"INTEGER": "INT", "DEC": "DECIMAL", "NUMERIC": "DECIMAL"}
_TIMESTAMP = re.compile(r"TIMESTAMP(?:_LTZ)?\((\d)\)")
_DEFAULT_SIZES = {"DECIMAL": 10, "TIMESTAMP": 6, "TIMESTAMP_LTZ": 6, "TIME": 0}
_LENGTHS = ("CHAR", "VARCHAR", "BINARY", "VARBINARY")
_AFTER = {
    "DOUBLE": ("PRECISION",),
    "TIMESTAMP": ("WITH LOCAL TIME ZONE", "WITHOUT TIME ZONE"),
    "TIME": ("WITHOUT TIME ZONE",),
}
"""What may be written after a type."""
_MOST_PRECISION = 38
_MOST_LENGTH = 2**31 - 1


def parse(text: str, nullable: bool = True) -> JsonType:
    """Paimon's JSON form of a type in Flink's spelling; `TableError` if there is no such type.

    The fields of each `ROW` get ids from 0; the catalog assigns new ones.
    """
    parsed = _parsed(text.strip(), nullable)
    if parsed is None:
        raise TableError(
            f"'{text}' is not a column type; types are BOOLEAN, TINYINT, SMALLINT, INT, "
            "BIGINT, FLOAT, DOUBLE, DECIMAL(p, s), CHAR(n), VARCHAR(n), STRING, BINARY(n), "
            "VARBINARY(n), BYTES, DATE, TIME(p), TIMESTAMP(p), TIMESTAMP_LTZ(p), ARRAY<t>, "
            "MAP<k, v>, MULTISET<t>, ROW<name t, …>"
        )
    return parsed


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
        return _arrow_atomic(parsed.removesuffix(" NOT NULL"))
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


def precisions(columns: Mapping[str, str]) -> dict[str, int]:
    """The precision of each TIMESTAMP column: digits of a second.

    `columns` maps names to types as `flink_spelling` returns them.
    """
    matches = ((name, _TIMESTAMP.match(kind)) for name, kind in columns.items())
    return {name: int(match[1]) for name, match in matches if match}


def _arrow_field(name: str, parsed: JsonType) -> pa.Field:
    text = parsed if isinstance(parsed, str) else parsed["type"]
    return pa.field(name, arrow_type(parsed), nullable=not text.endswith("NOT NULL"))


def _arrow_atomic(text: str) -> pa.DataType:
    name, _, arguments = text.partition("(")
    numbers = [int(number) for number in re.findall(r"\d+", arguments)]
    if name == "DECIMAL":
        return pa.decimal128(*numbers)
    if name == "TIMESTAMP":
        unit = ("s", "ms", "us", "ns")[(numbers[0] + 2) // 3]
        return pa.timestamp(unit, tz="UTC" if "LOCAL" in text else None)
    return PLAIN[name]


def _parsed(text: str, nullable: bool = True) -> JsonType | None:
    """As `parse`; None if there is no such type."""
    if explicit := _NULLABILITY.fullmatch(text):
        text = explicit["kind"]
        # A type that must not be null stays so.
        nullable = nullable and not explicit["not"]
    suffix = "" if nullable else " NOT NULL"
    nested = _NESTED.fullmatch(text)
    if nested is None:
        atomic = _atomic(text)
        return None if atomic is None else atomic + suffix
    word, brackets = nested["word"].upper(), nested["open"] + nested["close"]
    parts = _split(nested["parts"])
    if brackets not in (("<>", "()") if word == "ROW" else ("<>",)) or parts is None:
        return None
    inner = _fields(parts) if word == "ROW" else _elements(word, parts)
    return inner and {"type": word + suffix, **inner, "nullable": nullable}


def _atomic(text: str) -> str | None:
    match = _ATOMIC.fullmatch(" ".join(text.upper().split()))
    if match is None:
        return None
    word = _SYNONYMS.get(match["word"], match["word"])
    if word not in PLAIN and word not in _DEFAULT_SIZES:
        return None
    sized, after = word in _DEFAULT_SIZES or word in _LENGTHS, match["after"]
    if (after and after not in _AFTER.get(word, ())) or (match["size"] and not sized):
        return None
    if not sized or (match["scale"] and word != "DECIMAL"):
        return None if sized else word
    size = int(match["size"] or _DEFAULT_SIZES.get(word, 1))
    if word == "DECIMAL":
        scale = int(match["scale"] or 0)
        if not 1 <= size <= _MOST_PRECISION or scale > size:
            raise TableError(
                f"type {text}: DECIMAL(p, s) needs 1 <= p <= {_MOST_PRECISION} and "
                "0 <= s <= p; use STRING for numbers of more digits"
            )
        return f"DECIMAL({size}, {scale})"
    least, most = (1, _MOST_LENGTH) if word in _LENGTHS else (0, 9)
    if not least <= size <= most:
        raise TableError(
            f"type {text}: the size of {word} must be from {least} to {most}, not {size}"
        )
    if word == "TIMESTAMP_LTZ" or after == "WITH LOCAL TIME ZONE":
        return f"TIMESTAMP({size}) WITH LOCAL TIME ZONE"
    return f"{word}({size})"


def _elements(word: str, parts: Sequence[str]) -> dict[str, Any] | None:
    names = ("key", "value") if word == "MAP" else ("element",)
    types = [_parsed(part.strip()) for part in parts]
    if len(types) != len(names) or None in types:
        return None
    return dict(zip(names, types, strict=True))


def _fields(parts: Sequence[str]) -> dict[str, Any] | None:
    fields: list[dict[str, Any]] = []
    for part in parts:
        match = _FIELD.fullmatch(part)
        comment = match and _COMMENT.fullmatch(match["kind"])
        kind = match and _parsed((comment or match)["kind"].strip())
        if not match or not kind:
            return None
        name = match["name"]
        name = name[1:-1].replace("``", "`") if name.startswith("`") else name
        fields.append({"id": len(fields), "name": name, "type": kind})
        if comment:
            fields[-1]["description"] = comment["comment"].replace("''", "'")
    return {"fields": fields}


def _split(text: str) -> list[str] | None:
    """The parts between commas that are in no brackets; None if brackets do not match."""
    if not text.strip():
        return []
    parts, depth = [""], 0
    for part in _PART.findall(text):
        depth += (part in "<(") - (part in ">)")
        if part == "," and not depth:
            parts.append("")
        else:
            parts[-1] += part
        if depth < 0:
            return None
    return None if depth else parts
