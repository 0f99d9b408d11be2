"""Files of test cases: rounds of given and of expected rows, and their typed values."""

import csv
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Self, TypeAlias

import orjson
import pyarrow as pa
import yaml
from pydantic import BaseModel, BeforeValidator, Field, ValidationError, model_validator
from yaml.constructor import ConstructorError

from streamhouse.close_matches import nearest
from streamhouse.errors import OptionError
from streamhouse.formats.base import FormatChoice
from streamhouse.sql.views.stored_view import HIDDEN_KEY

Row: TypeAlias = dict[str, Any]
"""The values of a row, by column."""
KINDS = {kind: kind for kind in ("+I", "-U", "+U", "-D")}
KINDS |= {"": "+I", "insert": "+I", "update": "+U", "delete": "-D"}
"""The row kinds of what a row may have as its operation; empty: it has none."""
_MESSAGES = {
    "missing": "this key is missing",
    "list_type": "expected a list, as in [a, b]",
    "string_type": "expected a text",
    "datetime_from_date_parsing": "expected a time, as in 2026-01-01 12:00:00",
    **dict.fromkeys(("dict_type", "model_type"), "expected keys and values, as in {a: 1}"),
}


def _listed(rows: Any) -> Any:
    if isinstance(rows, str):
        lines = csv.reader(rows.strip().splitlines(), skipinitialspace=True)
        header, *found = [[field.strip() for field in line] for line in lines] or [[]]
        for number, row in enumerate(found, 1):
            if len(row) != len(header):
                raise ValueError(f"row {number}: {len(row)} fields; the header has {len(header)}")
        return [dict(zip(header, (each or None for each in row), strict=True)) for row in found]
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ValueError("rows are a list, as in [{id: 1}, {id: 2}], or CSV text with a header")
    return rows


Rows: TypeAlias = Annotated[list[Row], BeforeValidator(_listed)]
"""A list of rows; in a file also CSV text with a header, in which an empty field is NULL."""


class _Loader(yaml.SafeLoader):
    """Reads numbers and times as texts, which columns convert, so that no digit is lost."""

    yaml_implicit_resolvers = {
        first: [each for each in found if each[0].endswith((":null", ":merge"))]
        for first, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value]
        for number, key in enumerate(keys):
            if key in keys[:number]:
                raise ConstructorError(problem=f"two keys '{key}'", problem_mark=node.start_mark)
        return super().construct_mapping(node, deep)


class _Record(BaseModel):
    @model_validator(mode="before")
    @classmethod
    def _check_keys(cls, record: Any) -> Any:
        for key in record if isinstance(record, dict) else ():
            if key not in cls.model_fields:
                raise ValueError(f"there is no key '{key}'; {nearest(key, cls.model_fields)}")
        return record


class Round(_Record):
    """Rows that arrive together, and what is expected once all queries have read them.

    `now` is its time (UTC without a zone), by default ten seconds after the round before.
    """

    given: dict[str, Rows] = {}
    expect: dict[str, Rows] = {}
    expect_changes: dict[str, Rows] = {}
    now: datetime | None = None


class Case(Round):
    """A test case, whose tables begin empty; without `rounds`, it is its only round itself."""

    name: str
    rounds: list[Round] = []

    @model_validator(mode="after")
    def _check_rounds(self) -> Self:
        for key in ("given", "expect", "expect_changes"):
            if self.rounds and getattr(self, key):
                raise ValueError(f"it has rounds; move '{key}' into one of them")
        return self


class CaseFile(_Record):
    """A file of test cases; `script` has paths relative to it, `variables` those of the script."""

    script: Annotated[list[str], BeforeValidator(lambda v: [v] if isinstance(v, str) else v)] = []
    variables: dict[str, str] = {}
    tests: list[Case] = Field(min_length=1)

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        names = [case.name for case in self.tests]
        if len(set(names)) < len(names):
            raise ValueError("two cases have the same name")
        return self


def read_cases(path: Path) -> CaseFile:
    """Read a file of test cases; `OptionError` says what is wrong, and where."""
    try:
        with path.open(encoding="utf-8") as file:
            return CaseFile.model_validate(yaml.load(file, _Loader))
    except OSError as error:
        raise OptionError(f"{path} cannot be read: {error.strerror}") from None
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        raise OptionError(f"{path} is not YAML: {' '.join(str(error).split())}") from None
    except ValidationError as error:
        raise OptionError(f"{path}: {'; '.join(map(_problem, error.errors()))}") from None


def _problem(error: Any) -> str:
    """What pydantic says of a value, after its place, as in `test 1, round 2, given, orders`."""
    words = list[str]()
    for part in error["loc"]:
        if isinstance(part, int):
            words[-1] = f"{words[-1].removesuffix('s')} {part + 1}"
        else:
            words.append(part)
    text = _MESSAGES.get(error["type"], error["msg"].removeprefix("Value error, "))
    return f"{', '.join(words)}: {text}" if words else text


def operation_key(names: Sequence[str]) -> str:
    """The key of a row's operation: `op`, unless a column has that name."""
    return "rowkind" if "op" in names else "op"


def typed(rows: Rows, schema: pa.Schema, operations: bool = True) -> list[tuple[str, Row]]:
    """Rows with values of the columns' types, each after its operation (empty: it has none).

    Raises `OptionError` for an unknown column or operation, or a value of another type.
    """
    key = operation_key(schema.names) if operations else ""
    columns = {*schema.names} - {HIDDEN_KEY}
    for number, row in enumerate(rows, 1):
        words = [("column", columns, name) for name in row if name != key]
        for what, known, word in (*words, ("operation", KINDS.keys(), row.get(key) or "")):
            if word not in known:
                hint = nearest(word, known - {""})
                raise OptionError(f"row {number}: there is no {what} '{word}'; {hint}")
    values = [{name: row[name] for name in row if name != key} for row in rows]
    nullable = pa.schema(field.with_nullable(True) for field in schema)
    decoded = FormatChoice("json", {}, "").decoder(nullable).decode([*map(orjson.dumps, values)])
    for bad in decoded.bad:
        raise OptionError(f"row {bad.index + 1}: {bad.reason}")
    return [
        (row.get(key) or "", {name: found[name] for name in given})
        for row, given, found in zip(rows, values, decoded.rows.to_pylist(), strict=True)
    ]
