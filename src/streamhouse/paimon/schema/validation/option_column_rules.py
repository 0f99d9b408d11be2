"""Rules for options that name columns: each is a column, of a type that fits the option."""

from collections.abc import Iterator, Mapping, Sequence

from streamhouse.close_matches import nearest
from streamhouse.errors import OptionError, StreamhouseError
from streamhouse.options import table_of
from streamhouse.paimon.schema.options.option_columns import COLUMN_LISTS, INDEX, split_names
from streamhouse.paimon.schema.validation.declared_schema import NESTED, DeclaredSchema

_TABLE = table_of(__package__, "feature_rules.toml")
_LARGE: Mapping[str, str] = _TABLE["large"]
"""Options for columns of types that tables of Streamhouse do not have."""
_TYPES: Mapping[str, Sequence[str]] = _TABLE["column_types"]
"""The types of the columns that an option may name; empty: any but nested ones."""


def option_column_faults(schema: DeclaredSchema) -> Iterator[StreamhouseError]:
    """Options whose key or value names a column that is missing, or has an unsuitable type."""
    for key, value in schema.options.items():
        if key in _LARGE and value.strip():
            yield OptionError(
                f"{schema.where}: option '{key}' is for columns of type {_LARGE[key]}, which are "
                "not supported; leave it out"
            )
        elif key in COLUMN_LISTS:
            for name in split_names(value):
                # An empty bucket key is none.
                if name or key != "bucket-key":
                    yield from _faults(schema, key, name)
        elif INDEX.fullmatch(key):
            for name in split_names(value):
                yield from _missing(schema, key, name.partition("[")[0])
    for key, columns, what, value in schema.field_options:
        # As the Java core reads the key: up to the next point.
        for name in split_names(key.split(".")[1]):
            yield from _missing(schema, key, name)
        if what == "sequence-group":
            for name in split_names(value):
                yield from _missing(schema, key, name)
        for name in columns if what == "sequence-group" else ():
            yield from _unordered(schema, key, name)


def _faults(schema: DeclaredSchema, key: str, name: str) -> Iterator[StreamhouseError]:
    yield from _missing(schema, key, name)
    if name not in schema.texts or key not in _TYPES:
        return
    allowed = _TYPES[key]
    if not allowed:
        yield from _unordered(schema, key, name)
    elif schema.root(name) not in allowed:
        kinds = ", ".join(allowed)
        yield OptionError(
            f"{schema.where}: option '{key}' names column '{name}', which is "
            f"{schema.texts[name]}; it needs one of {kinds}"
        )


def _missing(schema: DeclaredSchema, key: str, name: str) -> Iterator[StreamhouseError]:
    if name not in schema.texts:
        hint = nearest(name, schema.texts)
        yield OptionError(
            f"{schema.where}: option '{key}' names '{name}', which is not a column; {hint}"
        )


def _unordered(schema: DeclaredSchema, key: str, name: str) -> Iterator[StreamhouseError]:
    if schema.root(name) in NESTED:
        yield OptionError(
            f"{schema.where}: option '{key}' names column '{name}', which is "
            f"{schema.texts[name]}; ARRAY, MAP, MULTISET and ROW values have no order, "
            "and decide no bucket"
        )
