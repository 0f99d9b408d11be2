"""Results of SHOW and DESCRIBE statements, as columns of text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from streamhouse.errors import TableError, UnsupportedSqlError
from streamhouse.options import hide_secrets, is_secret
from streamhouse.runtime.session.session import Session
from streamhouse.sql import functions
from streamhouse.sql.plan import Column, ComputedColumn, Name, TableInfo, ViewInfo
from streamhouse.sql.statements.create_view import create_text, ticked
from streamhouse.sql.syntax import Describe, Show

ResultColumns = Mapping[str, Sequence[str | None]]

_HIDDEN_OPTIONS = ("path",)
"""Options that SHOW CREATE TABLE leaves out: another catalog stores the table elsewhere."""


def describe(session: Session, statement: Show | Describe) -> ResultColumns:
    """The result columns of a SHOW or DESCRIBE; `TableError` for an unknown table or view."""
    kind = statement.kind if isinstance(statement, Show) else ""
    if kind in ("", "COLUMNS", "CREATE TABLE", "CREATE VIEW"):
        return _of_table(session, statement, kind)
    if kind == "FUNCTIONS":
        names = sorted([*functions.known(), *session.functions.names()], key=str.upper)
    elif kind == "USER FUNCTIONS":
        names = session.functions.names()
    elif kind == "JOBS":
        raise UnsupportedSqlError.at(
            statement.position,
            "SHOW JOBS would list nothing: queries start after the last statement; leave it out",
        )
    else:
        names = _names(session, kind, statement.name)
    return {kind.lower(): names}


def _names(session: Session, kind: str, of: Name) -> list[str]:
    """The names for SHOW CATALOGS, DATABASES, VIEWS or TABLES (which includes views).

    `of` is the database of the views and tables, by default the current one. `kind` may also be
    CURRENT CATALOG or CURRENT DATABASE.
    """
    catalogs = session.catalogs
    catalog, database = catalogs.current
    if kind == "CATALOGS":
        return catalogs.names()
    if kind == "DATABASES":
        return sorted(catalogs.warehouse(catalog).databases())
    if kind.startswith("CURRENT"):
        return [catalog if kind == "CURRENT CATALOG" else database]
    if of:
        catalog, database = catalogs.database(of)
    if kind.startswith("MATERIALIZED"):
        return session.materialized.listed(catalog, database)
    stored = catalogs.warehouse(catalog).tables(database)
    views = session.views.listed(catalog, database)
    if kind == "VIEWS":
        return views
    return sorted({*session.tables.temporary_names(catalog, database), *views, *stored})


def _of_table(session: Session, statement: Show | Describe, kind: str) -> ResultColumns:
    view = session.view(statement.name)
    if view is not None and kind != "CREATE TABLE":
        return _of_view(view, kind)
    if kind == "CREATE VIEW":
        name = ".".join(statement.name)
        raise TableError(f"'{name}' is not a view; SHOW VIEWS lists them")
    info = session.table(statement.name)
    if kind == "CREATE TABLE":
        return {"create table": [table_text(info)]}
    return {
        "name": [c.name for c in info.declared],
        "type": [c.type if isinstance(c, Column) else f"AS {c.expression}" for c in info.declared],
        "null": [str(c.nullable).upper() if isinstance(c, Column) else None for c in info.declared],
        "key": ["PRI" if c.name in info.primary_key else None for c in info.declared],
    }


def _of_view(view: ViewInfo, kind: str) -> ResultColumns:
    if kind == "CREATE VIEW":
        return {"create view": [create_text(view)]}
    names, types = [c.name for c in view.columns], [c.type for c in view.columns]
    return {"name": names, "type": types, "null": ["TRUE"] * len(names)}


def table_text(info: TableInfo) -> str:
    """The CREATE TABLE statement of a table, with secret option values masked."""
    lines = [_column(column) for column in info.declared]
    if info.primary_key:
        lines.append(f"PRIMARY KEY ({', '.join(map(ticked, info.primary_key))}) NOT ENFORCED")
    keyword = "TABLE" if info.connector == "paimon" else "TEMPORARY TABLE"
    text = f"CREATE {keyword} {'.'.join(map(ticked, info.name[-2:]))} (\n  "
    text += ",\n  ".join(lines) + "\n)"
    if info.partitioned_by:
        text += f" PARTITIONED BY ({', '.join(map(ticked, info.partitioned_by))})"
    hidden = _HIDDEN_OPTIONS if info.connector == "paimon" else ()
    options = [
        f"{_literal(key)} = {_literal(_masked(key, value))}"
        for key, value in sorted(info.options.items())
        if key not in hidden
    ]
    return f"{text} WITH (\n  " + ",\n  ".join(options) + "\n)" if options else text


def _column(column: Column | ComputedColumn) -> str:
    if isinstance(column, ComputedColumn):
        return f"{ticked(column.name)} AS {column.expression}"
    text = f"{ticked(column.name)} {column.type}"
    if not column.nullable:
        text += " NOT NULL"
    if column.metadata is not None:
        text += f" METADATA FROM {_literal(column.metadata)}{' VIRTUAL' if column.virtual else ''}"
    return text if not column.comment else f"{text} COMMENT {_literal(column.comment)}"


def _masked(key: str, value: str) -> str:
    return "****" if is_secret(key) else hide_secrets(value)


def _literal(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
