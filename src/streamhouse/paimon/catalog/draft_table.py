"""Tables in memory: that a script would create, or as it would change them (a dry run).

Also compares a declaration of CREATE TABLE IF NOT EXISTS with the table that exists.
"""

import json
from collections.abc import Iterator, Mapping, Sequence

from pypaimon_rust.datafusion import Table as RustTable

from streamhouse.errors import OptionError, StreamhouseError
from streamhouse.options import is_secret
from streamhouse.paimon.catalog.alter_table import NOWHERE, drafted
from streamhouse.paimon.catalog.catalog_client import new_schema
from streamhouse.paimon.catalog.table_declaration import TableDeclaration, checked_declaration
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.schema.table_name import split_identifier
from streamhouse.sql.plan import Column
from streamhouse.sql.schema_changes import SchemaChange

_OF_THE_CATALOG = ("path", "owner", "type", "connector")
"""Options that a catalog adds to a table."""


def declared_table(identifier: str, declaration: TableDeclaration) -> Table:
    """The table that a declaration would create, which has no files."""
    from pypaimon.common.json_util import JSON
    from pypaimon.schema.table_schema import TableSchema

    try:
        schema = JSON.to_json(TableSchema.from_schema(0, new_schema(declaration)))
    except ValueError as error:
        raise OptionError(f"table {identifier}: {error}") from error
    database, name = split_identifier(identifier)
    rust = RustTable.from_resolved_schema(NOWHERE, schema, database=database, table=name)
    return Table(rust, database, name, {"warehouse": NOWHERE}, json.loads(schema))


def altered(table: Table, changes: Sequence[SchemaChange]) -> Table:
    """A table after changes; raises the errors of `alter_table`. Defaults have no effect."""
    return drafted(table, changes)[0].table


def renamed(table: Table, identifier: str) -> Table:
    """The same table by another name."""
    database, name = split_identifier(identifier)
    return Table(table.rust, database, name, table.catalog_options, table.schema)


def declared_differences(full: str, declaration: TableDeclaration, stored: Table) -> list[str]:
    """How a declaration of CREATE TABLE IF NOT EXISTS differs from the table that exists.

    As the text of a notice; empty if the declaration is the table's.
    """
    try:
        declared = declared_table(full, checked_declaration(full, declaration))
    except StreamhouseError as error:
        return [str(error)]
    keys = (
        ("PRIMARY KEY", declared.primary_key, stored.primary_key),
        ("PARTITIONED BY", declared.partition_keys, stored.partition_keys),
    )
    return [
        *_of_columns(declared.columns, stored.columns),
        *(
            f"{clause} is ({', '.join(has)}), not ({', '.join(wanted)})"
            for clause, wanted, has in keys
            if wanted != has
        ),
        *_of_options(declared.options, stored.options),
    ]


def _of_columns(declared: Sequence[Column], stored: Sequence[Column]) -> Iterator[str]:
    has, wanted = ({column.name: _type(column) for column in each} for each in (stored, declared))
    for name, kind in wanted.items():
        if name not in has:
            yield f"it has no column '{name}'"
        elif has[name] != kind:
            yield f"column '{name}' is {has[name]}, not {kind}"
    for name in has:
        if name not in wanted:
            yield f"it also has the column '{name}'"


def _of_options(declared: Mapping[str, str], stored: Mapping[str, str]) -> Iterator[str]:
    for key in sorted({*declared, *stored} - {*_OF_THE_CATALOG}):
        wanted, has = declared.get(key), stored.get(key)
        if wanted == has:
            continue
        if is_secret(key):
            yield f"option '{key}' differs"
        elif has is None:
            yield f"option '{key}' is not set, not '{wanted}'"
        else:
            other = "" if wanted is None else f", not '{wanted}'"
            yield f"option '{key}' is '{has}'{other}"


def _type(column: Column) -> str:
    return column.type if column.nullable else f"{column.type} NOT NULL"
