"""A table's columns, keys and options, as the rules of this package read them."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from streamhouse.errors import TableError
from streamhouse.paimon.schema import types
from streamhouse.paimon.schema.options.option_columns import split_names
from streamhouse.paimon.schema.options.table_options import FIELD

NESTED = ("ARRAY", "MAP", "MULTISET", "ROW")


@dataclass(frozen=True)
class DeclaredSchema:
    """A table's definition; `columns` are names and types in Flink's spelling, `where` names it."""

    where: str
    columns: Sequence[tuple[str, str]]
    primary_key: Sequence[str]
    partition_keys: Sequence[str]
    options: Mapping[str, str]

    @cached_property
    def types(self) -> dict[str, types.JsonType]:
        """The types of the columns in Paimon's JSON form; without those that are no types."""
        parsed = {}
        for name, text in self.columns:
            with suppress(TableError):
                parsed[name] = types.parse(text)
        return parsed

    @cached_property
    def texts(self) -> dict[str, str]:
        """The types of the columns in Flink's spelling."""
        return dict(self.columns)

    @cached_property
    def field_options(self) -> list[tuple[str, list[str], str, str]]:
        """Options `fields.<columns>.<what>`: the key, its columns, `what`, and the value."""
        found = ((key, FIELD.fullmatch(key), value) for key, value in self.options.items())
        return [
            (key, split_names(field["columns"]), field["what"], value)
            for key, field, value in found
            if field
        ]

    @property
    def merge_engine(self) -> str:
        return self.option("merge-engine", "deduplicate")

    def option(self, key: str, default: str = "") -> str:
        """The value of an option whose case does not matter, in lower case."""
        return self.options.get(key, default).lower()

    def is_true(self, key: str) -> bool:
        return self.option(key) == "true"

    def root(self, column: str) -> str:
        """The name of a column's type, without its sizes; empty for an unknown column."""
        return root(self.types.get(column, ""))


def root(parsed: Any) -> str:
    """The name of a type in Paimon's JSON form, without its sizes."""
    text = parsed if isinstance(parsed, str) else parsed["type"]
    return str(text).partition("(")[0].removesuffix(" NOT NULL")
