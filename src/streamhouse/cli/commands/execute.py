"""`streamhouse execute`: runs bounded statements that change tables."""

import json
import sys
from pathlib import Path

from streamhouse.cli.flags import (
    DEFAULT_MASTER,
    DEFAULT_WAREHOUSE,
    open_warehouse,
    script_variables,
    spark_options,
    with_flags,
)


@with_flags("execute")
def execute(
    sql: str,
    warehouse: str | None = None,
    option: list[str] | None = None,
    master: str = DEFAULT_MASTER,
    conf: list[str] | None = None,
    variables: list[str] | None = None,
    as_json: bool = False,
) -> None:
    """Run statements that change tables, and print how many rows they changed.

    Supported are MERGE, UPDATE, DELETE, TRUNCATE, INSERT of VALUES or of a query, and DDL. Write
    tables as database.table. Without --warehouse, the tables are in ./warehouse, or in the catalogs
    that the statements create. Continuous queries may write the same tables at the same time. The
    statements run in this process, without Spark; --master has no effect.
    """
    if spark_options(master, conf) != spark_options(DEFAULT_MASTER):
        print(
            "notice: `execute` runs without Spark: no effect of --master, --conf", file=sys.stderr
        )
    from streamhouse.sql.script_variables import with_variables

    text = sys.stdin.read() if sql == "-" else sql
    text = with_variables(text, script_variables(variables))
    opened = None
    if warehouse is not None or option or not _creates_catalog(text):
        opened = open_warehouse(warehouse or DEFAULT_WAREHOUSE, option)

    from streamhouse.runtime.execute import execute as run

    done = run(opened, text, modules=Path())
    if as_json:
        counts = {"inserted": done.inserted, "updated": done.updated, "deleted": done.deleted}
        others = {"rewritten": done.rewritten, "snapshot": done.snapshot, "actions": done.actions}
        print(json.dumps(counts | others))
    else:
        print(done)


def _creates_catalog(text: str) -> bool:
    if "catalog" not in text.lower():
        return False  # without parsing a text twice that may be long
    from streamhouse.sql.statements.script import parse_script
    from streamhouse.sql.syntax import CreateCatalog

    return any(isinstance(statement, CreateCatalog) for statement in parse_script(text))
