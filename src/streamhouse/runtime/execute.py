"""Python API for bounded statements: DDL, INSERT, MERGE, UPDATE, DELETE and TRUNCATE."""

import logging
from collections.abc import Mapping
from pathlib import Path

from streamhouse.errors import StreamhouseError, UnsupportedSqlError
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.java.sidecar import Sidecar
from streamhouse.runtime.batch import bounded_statements, dml
from streamhouse.runtime.batch.dml import Changed
from streamhouse.runtime.session.ddl import define, located, note_outdated_options
from streamhouse.runtime.session.dry_run import DraftSession
from streamhouse.runtime.session.session import Session
from streamhouse.runtime.statements.script_plan import held_notices, plan_script
from streamhouse.sql import syntax
from streamhouse.sql.script_variables import with_references
from streamhouse.sql.statements.script import parse_script
from streamhouse.sql.udf_modules.module import search
from streamhouse.sql.views.statement import AlterMaterializedView


def execute(
    warehouse: str | Mapping[str, str] | Warehouse | None,
    sql: str,
    sidecar: Sidecar | None = None,
    modules: Path | None = None,
) -> Changed:
    """Run statements on the tables of a warehouse, in order; needs no Spark.

    `warehouse` is a folder, a URI, or catalog options; None: `sql` creates its catalogs. `sql` may
    hold definitions (CREATE, ALTER, DROP, USE, SET), INSERT [OVERWRITE] of VALUES or of a query,
    which runs in batch mode, MERGE, UPDATE, DELETE and TRUNCATE. Tables are named `database.table`;
    an unqualified name is in the database `default`. Returns the row counts of all statements
    together, and the last snapshot. Each statement is one commit: when one fails, the commits
    before it stay. Statements that must compact (such as DELETE from aggregation and partial-update
    tables) need Java: they start a JVM, unless a running `sidecar` of the warehouse is given.
    Modules of Python functions are found as by `import`, and in the folder `modules`. Raises
    `SqlError` and `TableError` (before anything runs, if a statement cannot be parsed or planned),
    and `CommitConflictError` if other writers hold the table too long.

        >>> execute("warehouse", "DELETE FROM shop.customers WHERE id = 11").deleted
        1
    """
    if not isinstance(warehouse, Warehouse | None):
        warehouse = Warehouse(warehouse)
    options = None if warehouse is None else warehouse.options
    statements = parse_script(with_references(sql))
    if modules is not None and any(
        isinstance(statement, syntax.CreateFunction) for statement in statements
    ):
        search([modules])
    if len(statements) > 1:
        draft = DraftSession(options, requires_warehouse=True)
        draft.settings.set("execution.runtime-mode", "batch")
        with held_notices(draft, draft.notice):
            for _ in plan_script(draft, statements):
                pass
    session, total, stored = Session(options), Changed(), False
    session.settings.set("execution.runtime-mode", "batch")
    for statement in statements:
        try:
            with located(statement):
                note_outdated_options(session, statement)
                defined = None if _sets_mode(statement) else define(session, statement)
                if defined is None:
                    result = _run(session, statement, sidecar)
                else:
                    result = Changed(actions=(defined.text,) if defined.text else ())
        except StreamhouseError:
            if stored:
                session.notice(f"the statements before the error stay done: {total}")
            raise
        total = total.plus(result)
        stored = stored or (defined.stored if defined is not None else result != Changed())
    return total


def _run(session: Session, statement: syntax.Statement, sidecar: Sidecar | None) -> Changed:
    match statement:
        case syntax.DmlStatement():
            return dml.execute(session, statement, sidecar)
        case syntax.Truncate():
            dml.truncate(session, statement, sidecar)
            return Changed(actions=(f"table {'.'.join(statement.target)}: all rows removed",))
        case AlterMaterializedView():
            from streamhouse.runtime.views.refresh import refresh_view

            changes = refresh_view(session, statement)
            return Changed(actions=(f"{'.'.join(statement.name)}: refreshed, {changes:,} changes",))
        case syntax.Insert():
            result = bounded_statements.insert(session, statement, sidecar)
            if result.hidden:
                logging.getLogger("streamhouse").warning("INSERT: %s", result)
            return Changed(inserted=result.inserted, updated=result.updated)
    raise UnsupportedSqlError(
        "this statement cannot be executed here; `streamhouse query` prints a SELECT, "
        "`streamhouse run` runs scripts"
    )


def _sets_mode(statement: syntax.Statement) -> bool:
    options = (None, "execution.runtime-mode")
    return isinstance(statement, syntax.SetOption | syntax.ResetOption) and statement.key in options
