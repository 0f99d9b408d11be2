"""Converts column types between Flink's spelling, Paimon's JSON form and Arrow."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeAlias

import pyarrow as pa

from streamhouse.errors import TableError
from streamhouse.types import PLAIN

JsonType: TypeAlias = "str | dict[str, Any]"

_TOKEN = re.compile(r"\s*(`(?:[^`]|``)*`|'(?:[^']|'')*'|[A-Za-z_][\w$-]*|\d+|[<>(),])")
_SYNONYMS = {"INTEGER": "INT", "DEC": "DECIMAL", "NUMERIC": "DECIMAL"}
_TIMESTAMP = re.compile(r"TIMESTAMP(?:_LTZ)?\((\d)\)")
_DEFAULT_ARGUMENTS = {"DECIMAL": "10, 0", "TIMESTAMP": "6", "TIMESTAMP_LTZ": "6", "TIME": "0"}
_SIZED = {"CHAR", "VARCHAR", "BINARY", "VARBINARY", *_DEFAULT_ARGUMENTS}
_NESTED = {"ARRAY": 1, "MULTISET": 1, "MAP": 2}
_MOST_PRECISION = 38
_MOST_LENGTH = 2**31 - 1


def parse(text: str, nullable: bool = True) -> JsonType:
    """Paimon's JSON form of a type in Flink's spelling; `TableError` if there is no such type.

    The fields of each `ROW` get ids from 0; the catalog assigns new ones.
    """
    parser = _Parser(text)
    parsed = parser.type(nullable)
    parser.end()
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


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[str] = []
        position = 0
        while position < len(text.rstrip()):
            match = _TOKEN.match(text, position)
            if match is None:
                raise self._error()
            self._tokens.append(match.group(1))
            position = match.end()
        self._at = 0

    def type(self, nullable: bool = True) -> JsonType:
        word = self._next().upper()
        word = _SYNONYMS.get(word, word)
        suffix = "" if nullable else " NOT NULL"
        if word in _NESTED:
            return self._collection(word, suffix)
        if word == "ROW":
            return self._row(suffix)
        if word not in PLAIN and word not in _DEFAULT_ARGUMENTS:
            raise self._error()
        text = self._sized(word)
        if self._takes("NOT", "NULL"):
            suffix = " NOT NULL"
        else:
            self._takes("NULL")
        return text + suffix

    def end(self) -> None:
        if self._at < len(self._tokens):
            raise self._error()

    def _sized(self, word: str) -> str:
        if word == "DOUBLE":
            self._takes("PRECISION")
        arguments = _DEFAULT_ARGUMENTS.get(word, "1" if word in _SIZED else "")
        if word in _SIZED and self._takes("("):
            arguments = self._number()
            if word == "DECIMAL":
                arguments += ", " + (self._number() if self._takes(",") else "0")
            self._expect(")")
        local = word == "TIMESTAMP_LTZ"
        if word == "TIMESTAMP":
            local = self._takes("WITH", "LOCAL", "TIME", "ZONE")
        if word in ("TIMESTAMP", "TIME") and not local:
            self._takes("WITHOUT", "TIME", "ZONE")
        self._check_size(word, arguments)
        if local:
            return f"TIMESTAMP({arguments}) WITH LOCAL TIME ZONE"
        return f"{word}({arguments})" if arguments else word

    def _check_size(self, word: str, arguments: str) -> None:
        """Raise `TableError` for a length, precision or scale that Flink's types do not have."""
        if word not in _SIZED:
            return
        size, *rest = (int(number) for number in arguments.split(","))
        if word == "DECIMAL":
            (scale,) = rest
            if not 1 <= size <= _MOST_PRECISION or scale > size:
                raise TableError(
                    f"type {self._text}: DECIMAL(p, s) needs 1 <= p <= {_MOST_PRECISION} and "
                    "0 <= s <= p; use STRING for numbers of more digits"
                )
            return
        least, most = (0, 9) if word in _DEFAULT_ARGUMENTS else (1, _MOST_LENGTH)
        if not least <= size <= most:
            raise TableError(
                f"type {self._text}: the size of {word} must be from {least} to {most}, not {size}"
            )

    def _collection(self, word: str, suffix: str) -> JsonType:
        self._expect("<")
        parts = [self.type()]
        if word == "MAP":
            self._expect(",")
            parts.append(self.type())
        self._expect(">")
        names = ("key", "value") if word == "MAP" else ("element",)
        return self._nested(word, suffix, dict(zip(names, parts, strict=True)))

    def _row(self, suffix: str) -> JsonType:
        close = ">" if self._takes("<") else ")"
        if close == ")":
            self._expect("(")
        fields: list[dict[str, Any]] = []
        while not self._takes(close):
            if fields:
                self._expect(",")
            name = self._next()
            name = name[1:-1].replace("``", "`") if name.startswith("`") else name
            field: dict[str, Any] = {"id": len(fields), "name": name, "type": self.type()}
            if self._at < len(self._tokens) and self._tokens[self._at].startswith("'"):
                field["description"] = self._next()[1:-1].replace("''", "'")
            fields.append(field)
        return self._nested("ROW", suffix, {"fields": fields})

    def _nested(self, word: str, suffix: str, parts: dict[str, Any]) -> JsonType:
        if self._takes("NOT", "NULL"):
            suffix = " NOT NULL"
        return {"type": word + suffix, **parts, "nullable": not suffix}

    def _number(self) -> str:
        number = self._next()
        if not number.isdigit():
            raise self._error()
        return number

    def _next(self) -> str:
        if self._at >= len(self._tokens):
            raise self._error()
        self._at += 1
        return self._tokens[self._at - 1]

    def _takes(self, *words: str) -> bool:
        upcoming = [token.upper() for token in self._tokens[self._at : self._at + len(words)]]
        if upcoming != list(words):
            return False
        self._at += len(words)
        return True

    def _expect(self, word: str) -> None:
        if not self._takes(word):
            raise self._error()

    def _error(self) -> TableError:
        return TableError(
            f"'{self._text}' is not a column type; types are BOOLEAN, TINYINT, SMALLINT, INT, "
            "BIGINT, FLOAT, DOUBLE, DECIMAL(p, s), CHAR(n), VARCHAR(n), STRING, BINARY(n), "
            "VARBINARY(n), BYTES, DATE, TIME(p), TIMESTAMP(p), TIMESTAMP_LTZ(p), ARRAY<t>, "
            "MAP<k, v>, MULTISET<t>, ROW<name t, …>"
        )
