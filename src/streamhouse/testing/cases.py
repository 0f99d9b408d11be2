"""Files of test cases: rounds of given and of expected rows, and their typed values."""

import csv
from datetime import datetime
from decimal import Context, Decimal
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
from streamhouse.types import flink_type

Row: TypeAlias = dict[str, Any]
"""The values of a row, by column."""
_KINDS = {kind: kind for kind in ("+I", "-U", "+U", "-D")}
_KINDS |= {"insert": "+I", "update": "+U", "delete": "-D"}
_ALL_DIGITS = Context(prec=99)
_DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}
"""The digits of a fraction of a second, by the unit of a type."""


def _listed(rows: Any) -> Any:
    """The rows of CSV text as a list."""
    if not isinstance(rows, str):
        return rows
    lines = csv.reader(rows.strip().splitlines(), skipinitialspace=True)
    header, *found = [[field.strip() for field in line] for line in lines] or [[]]
    if not found:
        raise ValueError("CSV text has a header and rows; without rows, write []")
    for number, row in enumerate(found, 1):
        if len(row) != len(header):
            raise ValueError(f"row {number} has {len(row)} fields, and the header {len(header)}")
    return [dict(zip(header, (field or None for field in row), strict=True)) for row in found]


Rows: TypeAlias = Annotated[list[Row], BeforeValidator(_listed)]
"""A list of rows; in a file also CSV text with a header, in which an empty field is NULL."""


class Round(BaseModel, extra="forbid"):
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
        for key in self.model_fields_set & Round.model_fields.keys() if self.rounds else ():
            raise ValueError(f"it has rounds; move '{key}' into one of them")
        return self


class CaseFile(BaseModel, extra="forbid"):
    """A file of test cases; `script` has paths relative to it, `variables` those of the script."""

    script: Annotated[list[str], BeforeValidator(lambda v: [v] if isinstance(v, str) else v)] = []
    variables: dict[str, str] = {}
    tests: list[Case] = Field(min_length=1)


class _Loader(yaml.SafeLoader):
    """Reads numbers and times as texts, which columns convert, so that no digit is lost."""

    yaml_implicit_resolvers = {
        first: [each for each in found if each[0].endswith((":null", ":merge"))]
        for first, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value]
        if len(keys) > len({*keys}):
            raise ConstructorError(problem="a key is there twice", problem_mark=node.start_mark)
        return super().construct_mapping(node, deep)


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
    """What pydantic says of a value, after its place, as in `tests 1 rounds 2 given orders`."""
    place = " ".join(str(at + 1) if isinstance(at, int) else at for at in error["loc"])
    text = error["msg"].removeprefix("Value error, ")
    if error["type"] == "extra_forbidden":
        known = {*CaseFile.model_fields, *Case.model_fields}
        text = f"there is no such key; {nearest(error['loc'][-1], known)}"
    return f"{place or 'file'}: {text}"


def operation_key(schema: pa.Schema) -> str:
    """The key of a row's operation: `op`, unless a column has that name."""
    return "rowkind" if "op" in schema.names else "op"


def typed(rows: Rows, schema: pa.Schema, where: str, operation: str = "") -> Rows:
    """Rows with values of the columns' types, which are read as the format `json` does.

    Under the key of an `operation`, if there is one, each gets its row kind. Raises `OptionError`,
    which begins with `where`, for an unknown column or operation, or a value of another type.
    """
    if operation:
        rows = [{**row, operation: row.get(operation) or "insert"} for row in rows]
    for number, row in enumerate(rows, 1):
        words = [("column", name, schema.names) for name in row]
        if operation:
            words.append(("operation", row[operation], list(_KINDS)))
            row[operation] = _KINDS.get(row[operation])
        for what, word, known in words:
            if word not in known:
                hint = nearest(word, known)
                raise OptionError(f"{where}: row {number}: there is no {what} '{word}'; {hint}")
    nullable = pa.schema(field.with_nullable(True) for field in schema)
    decoded = FormatChoice("json", {}, "").decoder(nullable).decode([*map(orjson.dumps, rows)])
    for bad in decoded.bad:
        raise OptionError(f"{where}: row {bad.index + 1}: {bad.reason}")
    found = decoded.rows.to_pylist()
    for number, row in enumerate(rows, 1):
        for name, value in row.items():
            if ignored := _ignored(value, schema.field(name).type):
                raise OptionError(f"{where}: row {number}: column '{name}': {ignored}")
    return [{name: value[name] for name in row} for row, value in zip(rows, found, strict=True)]


def _ignored(value: Any, kind: pa.DataType) -> str:
    """What of a value the format ignores: a field that a ROW does not have, or digits."""
    parts: list[tuple[Any, pa.DataType]] = []
    if pa.types.is_struct(kind) and isinstance(value, dict):
        fields = {field.name: field.type for field in kind}
        for name in value.keys() - fields:
            return f"there is no field '{name}'; {nearest(name, fields)}"
        parts = [(each, fields[name]) for name, each in value.items()]
    elif pa.types.is_map(kind) and isinstance(value, dict):
        parts = [(each, kind.item_type) for each in value.values()]
    elif pa.types.is_list(kind) and isinstance(value, list):
        parts = [(each, kind.value_type) for each in value]
    elif isinstance(value, str):
        digits, most = 0, 0
        if pa.types.is_decimal(kind):
            exponent = Decimal(value).normalize(_ALL_DIGITS).as_tuple().exponent
            digits, most = -int(exponent), kind.scale
        elif pa.types.is_timestamp(kind):
            digits, most = len(value.partition(".")[2].rstrip("Z0")), _DIGITS[kind.unit]
        if digits > most:
            return f"{value} has more digits than {flink_type(kind)}"
    return next(filter(None, (_ignored(*part) for part in parts)), "")
