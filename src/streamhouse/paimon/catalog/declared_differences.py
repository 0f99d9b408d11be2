"""How the declaration of CREATE TABLE IF NOT EXISTS differs from the table that exists."""

from collections.abc import Iterator, Mapping, Sequence

from streamhouse.errors import StreamhouseError
from streamhouse.options import is_secret
from streamhouse.paimon.catalog.draft_table import DraftTable
from streamhouse.paimon.catalog.table_declaration import TableDeclaration, checked_declaration
from streamhouse.sql.plan import Column

_OF_THE_CATALOG = ("path", "owner", "type", "connector")
"""Options that a catalog adds to a table."""


def differences(full: str, declaration: TableDeclaration, stored: DraftTable) -> list[str]:
    """The differences, as the text of a notice; empty if the declaration is the table's."""
    try:
        declared = DraftTable(full, checked_declaration(full, declaration))
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
            if tuple(wanted) != tuple(has)
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
