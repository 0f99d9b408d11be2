"""`streamhouse execute`: runs bounded statements that change tables."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from streamhouse.cli.arguments import (
    DEFAULT_WAREHOUSE,
    OptionsArgument,
    WarehouseArgument,
    open_warehouse,
)
from streamhouse.cli.spark_arguments import (
    DEFAULT_MASTER,
    ConfArgument,
    MasterArgument,
    spark_options,
)


def execute(
    sql: Annotated[
        str, typer.Argument(metavar="SQL", help="MERGE, UPDATE, DELETE, INSERT …; - reads stdin.")
    ],
    warehouse: WarehouseArgument = DEFAULT_WAREHOUSE,
    option: OptionsArgument = None,
    master: MasterArgument = DEFAULT_MASTER,
    conf: ConfArgument = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the counts as one JSON object.")
    ] = False,
) -> None:
    """Run statements that change tables, and print how many rows they changed.

    Supported are MERGE, UPDATE, DELETE, TRUNCATE, INSERT of VALUES or of a query, and DDL. Write
    tables as database.table. Continuous queries may write the same tables at the same time. The
    statements run in this process, without Spark; --master has no effect.
    """
    if spark_options(master, conf) != spark_options(DEFAULT_MASTER):
        print(
            "notice: `execute` runs without Spark: no effect of --master, --conf", file=sys.stderr
        )
    opened = open_warehouse(warehouse, option)

    from streamhouse.runtime.execute import execute as run

    done = run(opened, sys.stdin.read() if sql == "-" else sql, modules=Path())
    if as_json:
        counts = {"inserted": done.inserted, "updated": done.updated, "deleted": done.deleted}
        print(json.dumps(counts | {"rewritten": done.rewritten, "snapshot": done.snapshot}))
    else:
        print(done)
