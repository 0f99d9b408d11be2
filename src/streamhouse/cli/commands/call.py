"""`streamhouse call`: runs one procedure over a warehouse."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING

from streamhouse.cli.flags import (
    DEFAULT_MASTER,
    DEFAULT_WAREHOUSE,
    TextFormat,
    open_warehouse,
    spark_options,
    with_flags,
)
from streamhouse.cli.run_output import notice
from streamhouse.errors import SqlError

if TYPE_CHECKING:
    from pyspark import SparkContext

    from streamhouse.runtime.spark.settings import SparkOptions
    from streamhouse.sql.syntax import Call


@with_flags("call")
def call(
    procedure: str | None = None,
    warehouse: str = DEFAULT_WAREHOUSE,
    option: list[str] | None = None,
    format: TextFormat = TextFormat.TABLE,
    list_them: bool = False,
    master: str = DEFAULT_MASTER,
    conf: list[str] | None = None,
) -> None:
    """Run a procedure over a warehouse: compact, expire, tag, branch, roll back, clean up.

    Write tables as database.table, or just table if only one database has it.
    """
    import streamhouse.runtime.procedures  # noqa: F401  # registers those of the runtime
    from streamhouse.cli.output import write_rows
    from streamhouse.procedures.context import Context
    from streamhouse.procedures.registry import listed, run
    from streamhouse.serve.views.served_view import WarehouseTables

    if list_them:
        rows = listed()
        write_rows(format, rows.schema, rows.to_batches(), sys.stdout)
        return
    if procedure is None:
        raise SqlError("the procedure is missing; --list prints all procedures")
    statement = parse_call(procedure)
    options = spark_options(master, conf)
    opened = open_warehouse(warehouse, option)
    tables = WarehouseTables(opened)
    with (
        ExitStack() as at_end,
        Context(opened, lambda: _spark(options, opened.options, at_end)) as context,
    ):
        rows = run(context, statement.procedure, statement.arguments, tables.qualified)
    write_rows(format, rows.schema, rows.to_batches(), sys.stdout)


def parse_call(text: str) -> Call:
    """The one CALL of a text, whose first word may be left out; `SqlError` for anything else."""
    from streamhouse.sql.statements.script import parse_script
    from streamhouse.sql.syntax import Call

    first = text.split(maxsplit=1)[:1]
    statement = text if first and first[0].upper() == "CALL" else f"CALL {text}"
    statements = parse_script(statement)
    if len(statements) == 1 and isinstance(statements[0], Call):
        return statements[0]
    raise SqlError("`call` takes exactly one procedure; `streamhouse run` runs scripts")


def _spark(options: SparkOptions, warehouse: Mapping[str, str], at_end: ExitStack) -> SparkContext:
    """Start Spark for a procedure that needs it; it ends with the command."""
    from streamhouse.runtime.batch.progress_line import progress
    from streamhouse.runtime.spark.session import check_cluster, end_session, start_session

    at_end.callback(end_session)
    with progress() as line:
        line.part("starting Spark", None)
        spark = start_session("streamhouse", options)
        check_cluster(spark, options, [warehouse], notice)
    return spark
