"""Results of SHOW and DESCRIBE statements, as columns of text."""

import re
from collections.abc import Mapping, Sequence

from streamhouse.errors import TableError, UnsupportedSqlError
from streamhouse.options import hide_secrets, is_secret
from streamhouse.runtime.session.session import Session
from streamhouse.sql.functions import supported
from streamhouse.sql.plan import Column, ComputedColumn, Name, TableInfo
from streamhouse.sql.statements.create_view import create_text
from streamhouse.sql.statements.watermark import IDLE_OPTION
from streamhouse.sql.syntax import Describe, Show
from streamhouse.sql.text import ticked
from streamhouse.sql.views.stored_view import QUERY, StoredView, is_view

ResultColumns = Mapping[str, Sequence[str | None]]

_HIDDEN_OPTIONS = ("path",)
"""Options that SHOW CREATE TABLE leaves out: another catalog stores the table elsewhere."""


def describe(session: Session, statement: Show | Describe) -> ResultColumns:
    """The result columns of a SHOW or DESCRIBE; `TableError` for an unknown table or view."""
    if isinstance(statement, Describe):
        return _columns(session, statement.name)
    kind = statement.kind
    if kind.startswith("CREATE"):
        return {kind.lower(): [_definition(session, statement)]}
    if kind == "COLUMNS":
        result: ResultColumns = _columns(session, statement.name)
    else:
        result = {kind.lower(): _listed(session, statement)}
    if statement.like is None:
        return result
    names = next(iter(result.values()))
    found = [bool(re.fullmatch(statement.like, name or "")) for name in names]
    places = [place for place, matches in enumerate(found) if matches != statement.unlike]
    return {key: [values[place] for place in places] for key, values in result.items()}


def _listed(session: Session, statement: Show) -> list[str]:
    """The names for SHOW FUNCTIONS, CATALOGS, DATABASES, VIEWS, TABLES (which includes views) …."""
    catalogs, kind = session.catalogs, statement.kind
    catalog, database = catalogs.current
    match kind:
        case "FUNCTIONS":
            return sorted([*supported.known(), *session.functions], key=str.upper)
        case "USER FUNCTIONS":
            return sorted(session.functions)
        case "JOBS":
            raise UnsupportedSqlError.at(
                statement.position,
                "SHOW JOBS would list nothing: queries start after the last statement; leave it "
                "out",
            )
        case "CATALOGS":
            return catalogs.names()
        case "DATABASES":
            return sorted(catalogs.warehouse(catalog).databases())
        case "CURRENT CATALOG":
            return [catalog]
        case "CURRENT DATABASE":
            return [database]
    if statement.name:
        catalog, database = catalogs.database(statement.name)
    if kind.startswith("MATERIALIZED"):
        return session.materialized.listed(catalog, database)
    stored = catalogs.warehouse(catalog).tables(database)
    views = session.views.listed(catalog, database)
    if kind == "VIEWS":
        return views
    return sorted({*session.tables.temporary_names(catalog, database), *views, *stored})


def _columns(session: Session, name: Name) -> ResultColumns:
    view = session.view(name)
    if view is not None:
        names, types = [c.name for c in view.columns], [c.type for c in view.columns]
        return {"name": names, "type": types, "null": ["TRUE"] * len(names)}
    info = session.table(name)
    return {
        "name": [c.name for c in info.declared],
        "type": [c.type if isinstance(c, Column) else f"AS {c.expression}" for c in info.declared],
        "null": [str(c.nullable).upper() if isinstance(c, Column) else None for c in info.declared],
        "key": ["PRI" if c.name in info.primary_key else None for c in info.declared],
    }


def _definition(session: Session, statement: Show) -> str:
    """The CREATE statement of a table, a view or a materialized view."""
    kind, name = statement.kind, ".".join(statement.name)
    view = session.view(statement.name)
    if kind == "CREATE VIEW":
        if view is None:
            raise TableError(f"'{name}' is not a view; SHOW VIEWS lists them")
        return create_text(view)
    if view is not None and kind == "CREATE TABLE":
        raise TableError(f"'{name}' is a view; write SHOW CREATE VIEW {name}")
    materialized = kind.startswith("CREATE MATERIALIZED")
    full = session.full(statement.name)
    stored = session.materialized.existing(full) if materialized else None
    info = session.table(statement.name)
    if materialized or is_view(info):
        return view_text(info, stored or session.materialized.existing(full))
    return table_text(info)


def view_text(info: TableInfo, stored: StoredView) -> str:
    """The CREATE MATERIALIZED VIEW statement of a view, with secret option values masked."""
    columns = [ticked(column.name) for column in info.columns]
    if info.primary_key:
        columns.append(_key(info))
    text = f"CREATE MATERIALIZED VIEW {'.'.join(map(ticked, info.name[-2:]))} (\n  "
    text += ",\n  ".join(columns) + "\n)"
    text += _partitions_and_options(info)
    if stored.freshness_s:
        text += f"\nFRESHNESS = INTERVAL '{stored.freshness_s:.0f}' SECOND"
    if stored.full:
        text += "\nREFRESH_MODE = FULL"
    return f"{text}\nAS {stored.query}"


def table_text(info: TableInfo) -> str:
    """The CREATE TABLE statement of a table, with secret option values masked."""
    lines = [_column(column) for column in info.declared]
    if info.watermark is not None:
        lines.append(
            f"WATERMARK FOR {ticked(info.watermark.column)} AS {info.watermark.expression}"
        )
    if info.primary_key:
        lines.append(_key(info))
    keyword = "TABLE" if info.connector == "paimon" else "TEMPORARY TABLE"
    text = f"CREATE {keyword} {'.'.join(map(ticked, info.name[-2:]))} (\n  "
    return text + ",\n  ".join(lines) + "\n)" + _partitions_and_options(info)


def _key(info: TableInfo) -> str:
    return f"PRIMARY KEY ({', '.join(map(ticked, info.primary_key))}) NOT ENFORCED"


def _partitions_and_options(info: TableInfo) -> str:
    text = ""
    if info.partitioned_by:
        text = f" PARTITIONED BY ({', '.join(map(ticked, info.partitioned_by))})"
    given = dict(info.options)
    if info.watermark is not None and info.watermark.idle_timeout:
        given[IDLE_OPTION] = info.watermark.idle_timeout
    hidden = (*_HIDDEN_OPTIONS, QUERY) if info.connector == "paimon" else ()
    options = [
        f"{_literal(key)} = {_literal(_masked(key, value))}"
        for key, value in sorted(given.items())
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
