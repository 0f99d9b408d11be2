"""Rules for how rows of a key are merged: sequence fields, sequence groups, merge functions."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from streamhouse.close_matches import nearest
from streamhouse.errors import OptionError, StreamhouseError
from streamhouse.options import table_of
from streamhouse.paimon.schema.options.option_columns import split_names
from streamhouse.paimon.schema.validation.declared_schema import NESTED, DeclaredSchema, root
from streamhouse.sql.options.merge_functions import (
    MERGING_ENGINES,
    group_sequence_fields,
    sequence_fields,
)

_NUMERIC = ("TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL")
_BINARY = ("VARBINARY", "BYTES")
_LAST = "last_non_null_value"
_IN_ORDER = ("first_value", "first_non_null_value", "listagg")
"""Merge functions whose result depends on the place of each row in the order of a sequence."""


def _is(*names: str) -> Callable[[Any], bool]:
    return lambda parsed: root(parsed) in names


def _rows(parsed: Any) -> bool:
    return root(parsed) == "ARRAY" and root(parsed["element"]) == "ROW"


def _keyed_rows(parsed: Any) -> bool:
    return (
        root(parsed) == "MAP"
        and root(parsed["value"]) == "ROW"
        and len(parsed["value"]["fields"]) > 1
    )


def _unbounded(parsed: Any) -> bool:
    return parsed.removesuffix(" NOT NULL") in ("STRING", "VARCHAR(2147483647)")


_ANY = (lambda parsed: True, "any type")
_NUMBERS, _FLAGS = (_is(*_NUMERIC), "a numeric type"), (_is("BOOLEAN"), "BOOLEAN")
_ORDERED = (lambda parsed: root(parsed) not in NESTED, "a type whose values have an order")
_BITS, _NESTED_ROWS = (_is(*_BINARY), "BYTES or VARBINARY"), (_rows, "ARRAY<ROW<…>>")
FUNCTIONS: dict[str, tuple[Callable[[Any], bool], str]] = {
    **dict.fromkeys(("sum", "product"), _NUMBERS),
    **dict.fromkeys(("max", "min"), _ORDERED),
    **dict.fromkeys(("last_value", _LAST, "first_value", "primary-key"), _ANY),
    **dict.fromkeys(("first_non_null_value", "first_not_null_value"), _ANY),
    **dict.fromkeys(("bool_and", "bool_or"), _FLAGS),
    **dict.fromkeys(("rbm32", "rbm64", "hll_sketch", "theta_sketch"), _BITS),
    **dict.fromkeys(("nested_update", "nested_partial_update"), _NESTED_ROWS),
    "listagg": (lambda parsed: isinstance(parsed, str) and _unbounded(parsed), "STRING"),
    "collect": (_is("ARRAY"), "ARRAY"),
    "merge_map": (_is("MAP"), "MAP"),
    "merge_map_with_keytime": (_keyed_rows, "MAP<…, ROW<…>> with two fields or more"),
}
"""Merge functions, with the types that they can merge."""
_OWNERS: Mapping[str, Sequence[str]] = table_of(__package__, "feature_rules.toml")[
    "merge_functions"
]
"""Options of a column that only have an effect with certain merge functions."""
MERGING = ("aggregate-function", "ignore-retract", *_OWNERS)
"""Options of a column of a table whose merge engine merges column by column."""


def sequence_faults(schema: DeclaredSchema) -> Iterator[StreamhouseError]:
    """Sequence fields that are doubled, merged by a function, or not allowed."""
    fields = sequence_fields(schema.options)
    if fields and schema.merge_engine == "first-row":
        yield OptionError(
            f"{schema.where}: 'sequence.field' cannot be combined with 'merge-engine' = "
            "'first-row', which keeps the row that is written first; leave it out"
        )
    for name in sorted({name for name in fields if fields.count(name) > 1}):
        yield OptionError(f"{schema.where}: 'sequence.field' names column '{name}' twice")
    ordering = {*fields, *group_sequence_fields(schema.options)}
    for key, columns, what, _ in schema.field_options:
        if what == "aggregate-function" and ordering & set(columns):
            yield OptionError(
                f"{schema.where}: option '{key}' has no effect, since the column orders the rows "
                "of a key; leave the option out"
            )


def order_faults(schema: DeclaredSchema) -> Iterator[StreamhouseError]:
    """With a sequence, no function may depend on more than the last row.

    Merged rows have the sequence of the last of them, so a compaction moves the first ones behind
    rows that arrive later with a sequence between them.
    """
    orders = [
        key for key in schema.options if key == "sequence.field" or key.endswith(".sequence-group")
    ]
    for key, function in schema.options.items():
        merges = key.startswith("fields.") and key.endswith("aggregate-function")
        for order in orders if merges and function in _IN_ORDER else ():
            yield OptionError(
                f"{schema.where}: options '{key}' = '{function}' and '{order}' exclude each other: "
                "rows that arrive out of order would be merged differently before and after a "
                "compaction; leave one of them out"
            )


def group_faults(schema: DeclaredSchema) -> Iterator[StreamhouseError]:
    """Sequence groups with key columns, or with a column of another group."""
    owners: dict[str, str] = {}
    for key, ordering, what, value in schema.field_options:
        if what != "sequence-group":
            continue
        for name in dict.fromkeys([*ordering, *split_names(value)]):
            if name in schema.primary_key:
                yield OptionError(
                    f"{schema.where}: option '{key}' names '{name}', which is part of the primary "
                    "key; leave it out"
                )
            elif name in owners:
                yield OptionError(
                    f"{schema.where}: column '{name}' is in two sequence groups, '{owners[name]}' "
                    f"and '{key}'; leave it out of one"
                )
            owners[name] = key
        for name in sorted({n for n in split_names(value) if split_names(value).count(n) > 1}):
            yield OptionError(f"{schema.where}: option '{key}' names column '{name}' twice")
    removing = "partial-update.remove-record-on-sequence-group"
    ordering = group_sequence_fields(schema.options)
    for name in split_names(schema.options[removing]) if removing in schema.options else ():
        if name not in ordering:
            yield OptionError(
                f"{schema.where}: option '{removing}' names '{name}', by which no sequence group "
                f"is ordered; {nearest(name, ordering)}"
            )


def function_faults(schema: DeclaredSchema) -> Iterator[StreamhouseError]:
    """Merge functions that are unknown, or cannot merge the type of their column."""
    if schema.merge_engine not in MERGING_ENGINES or not schema.primary_key:
        return
    default = "fields.default-aggregate-function"
    named = {
        name: (key, value)
        for key, columns, what, value in schema.field_options
        if what == "aggregate-function"
        for name in columns
    }
    fixed = {
        *schema.primary_key,
        *group_sequence_fields(schema.options),
        *sequence_fields(schema.options),
    }
    grouped = {
        name
        for _, _, what, value in schema.field_options
        if what == "sequence-group"
        for name in split_names(value)
    }
    in_groups = schema.merge_engine == "partial-update"
    for name, parsed in schema.types.items():
        key, function = named.get(name, (default, schema.options.get(default, _LAST)))
        if function not in FUNCTIONS:
            hint = nearest(function, FUNCTIONS)
            yield OptionError(f"{schema.where}: option '{key}': no function '{function}'; {hint}")
        elif name in schema.primary_key and name in named:
            yield OptionError(
                f"{schema.where}: option '{key}' has no effect, since '{name}' is part of the "
                "primary key; leave it out"
            )
        elif name in fixed:
            continue
        elif not FUNCTIONS[function][0](parsed):
            yield OptionError(
                f"{schema.where}: option '{key}' = '{function}' cannot merge column '{name}', "
                f"which is {schema.texts[name]}; the function needs {FUNCTIONS[function][1]}"
            )
        elif in_groups and function != _LAST and name not in grouped:
            yield OptionError(
                f"{schema.where}: option '{key}' = '{function}' needs a sequence group that has "
                f"column '{name}': 'fields.<sequence>.sequence-group' = '{name}'"
            )
        yield from _element_faults(schema, name, function, parsed)


def _element_faults(
    schema: DeclaredSchema, name: str, function: str, parsed: Any
) -> Iterator[StreamhouseError]:
    """Options of a column that do not fit its merge function, or the rows inside its values."""
    for suffix, functions in _OWNERS.items():
        key = f"fields.{name}.{suffix}"
        if key in schema.options and function not in functions:
            yield OptionError(
                f"{schema.where}: option '{key}' has no effect without "
                f"'fields.{name}.aggregate-function' = '{functions[0]}'; leave it out"
            )
    key = f"fields.{name}.nested-key"
    if function == "nested_partial_update" and not schema.options.get(key, "").strip():
        yield OptionError(f"{schema.where}: function '{function}' of '{name}' needs '{key}'")
    inner = {"ts-field": "value", "nested-key": "element"}
    for suffix, part in inner.items():
        key = f"fields.{name}.{suffix}"
        if key not in schema.options or not isinstance(parsed, dict) or root(parsed[part]) != "ROW":
            continue
        fields = [field["name"] for field in parsed[part]["fields"]]
        for field in split_names(schema.options[key]):
            if field not in fields:
                hint = nearest(field, fields)
                yield OptionError(
                    f"{schema.where}: option '{key}' names '{field}', which is no field of the "
                    f"ROW values of '{name}'; {hint}"
                )


def ineffective_faults(schema: DeclaredSchema) -> Iterator[StreamhouseError]:
    """Options for merging that have no effect with the merge engine, or without a primary key."""
    engine = schema.merge_engine
    for key, value in schema.options.items():
        needed = _engines(key, value)
        if needed is None or (engine in needed and schema.primary_key):
            continue
        if not schema.primary_key:
            reason = "only has an effect in tables with a PRIMARY KEY; declare one"
        else:
            wanted = " or ".join(f"'merge-engine' = '{one}'" for one in needed)
            reason = f"only has an effect with {wanted}"
        yield OptionError(f"{schema.where}: option '{key}' {reason}, or leave the option out")


def _engines(key: str, value: str) -> tuple[str, ...] | None:
    """The merge engines with which an option has an effect; None for any table."""
    if key == "merge-engine" and value.lower() == "deduplicate":
        return None
    if key in ("sequence.field", "rowkind.field", "merge-engine"):
        return ("deduplicate", "first-row", *MERGING_ENGINES)
    what = key.rpartition(".")[2] if key.startswith("fields.") else ""
    if key == "fields.default-aggregate-function" or what in MERGING:
        return MERGING_ENGINES
    if what == "sequence-group":
        return ("partial-update",)
    engine = key.partition(".")[0]
    if engine in MERGING_ENGINES and ".remove-record-on-" in key and value.lower() != "false":
        return (engine,)
    return None
