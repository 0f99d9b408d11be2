"""Rules for a table's columns and keys: their names and types."""

from collections.abc import Iterable, Iterator

from streamhouse.close_matches import nearest
from streamhouse.errors import StreamhouseError, TableError
from streamhouse.paimon.schema import types
from streamhouse.paimon.schema.validation.declared_schema import NESTED, DeclaredSchema
from streamhouse.source import ROW_KIND

_RESERVED = ("_SEQUENCE_NUMBER", "_VALUE_KIND", "_LEVEL", "_ROW_ID")
_KEY_PREFIX = "_KEY_"
_NO_PARTITION = ("FLOAT", "DOUBLE", "BINARY", "VARBINARY", "BYTES")
"""Types of which the Rust core writes no partitions."""


def reserved_name(name: str) -> str | None:
    """Why no column can have a name, for messages; None: a column can.

    Paimon's files have columns of these names. Streams have the column `rowkind`, in any case.
    """
    if not name.strip():
        return "a column needs a name"
    if name.startswith(_KEY_PREFIX):
        return f"names that begin with {_KEY_PREFIX} are reserved by Paimon"
    if name in _RESERVED or name.lower() == ROW_KIND:
        return "the name is reserved by Paimon"
    return None


def name_conflict(name: str, others: Iterable[str]) -> str | None:
    """Why a table with other columns cannot have a column, for messages; None: it can."""
    other = next((other for other in others if other.lower() == name.lower() != ""), None)
    if other is not None and other != name:
        return f"its name and that of '{other}' differ only in case, which SQL engines ignore"
    return reserved_name(name)


def name_fault(where: str, name: str, others: Iterable[str] = ()) -> TableError | None:
    """The error of a column that a table with other columns cannot have; None: it can."""
    reason = name_conflict(name, others)
    if reason is None:
        return None
    return TableError(f"{where}: column '{name}': {reason}; choose another name")


def column_faults(schema: DeclaredSchema) -> Iterator[StreamhouseError]:
    """Columns that have no possible name or type, or that another column hides."""
    seen: list[str] = []
    for name, text in schema.columns:
        fault = name_fault(schema.where, name, seen)
        seen.append(name)
        if fault is not None:
            yield fault
        try:
            types.parse(text)
        except TableError as error:
            yield TableError(f"{schema.where}, column '{name}': {error}")
    names = [name for name, _ in schema.columns]
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield TableError(f"{schema.where}: column '{name}' is declared twice")


def key_faults(schema: DeclaredSchema) -> Iterator[StreamhouseError]:
    """Keys that are no columns, or have a type that no key can have."""
    roles = (("primary key", schema.primary_key), ("partition key", schema.partition_keys))
    for role, keys in roles:
        for key in keys:
            if key not in schema.texts:
                hint = nearest(key, schema.texts)
                yield TableError(f"{schema.where}: {role} '{key}' is not a column; {hint}")
            elif list(keys).count(key) > 1:
                yield TableError(f"{schema.where}: the {role} names column '{key}' twice")
            elif schema.root(key) in NESTED:
                yield TableError(
                    f"{schema.where}: {role} '{key}' is an array, a map or a row, which Paimon "
                    "does not support; choose another column"
                )
            elif role == "partition key" and schema.root(key) in _NO_PARTITION:
                yield TableError(
                    f"{schema.where}: partition key '{key}' is {schema.texts[key]}, of which no "
                    "partition can be written; choose another column, or make it a STRING"
                )
    missing = [key for key in schema.partition_keys if key not in schema.primary_key]
    if missing and set(schema.partition_keys) & set(schema.primary_key):
        yield TableError(
            f"{schema.where}: partition key '{missing[0]}' is not part of the primary key; add it"
        )
