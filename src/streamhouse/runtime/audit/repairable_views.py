"""Checks whether `repair` can recompute a view as of its queries' last commits."""

from __future__ import annotations

from streamhouse.errors import TableError
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.read.visibility import hides_new_rows
from streamhouse.runtime.audit.recorded_batches import Batch, RecordedBatches

_OVERWRITE = (
    "stop the query, and write the table by INSERT OVERWRITE … SELECT after "
    "SET 'execution.runtime-mode' = 'batch'"
)


def check_table(table: Table) -> None:
    """Raise `TableError` for a table that cannot be repaired by adding differences to its rows."""
    engine = table.options.get("merge-engine", "deduplicate").lower()
    where = f"table {table.identifier}"
    if not table.primary_key or hides_new_rows(table):
        kind = "deletion vectors" if table.primary_key else "no primary key"
        raise TableError(f"{where} has {kind}; repair it by INSERT from its sources")
    if engine != "aggregation":
        raise TableError(
            f"{where} has 'merge-engine' = '{engine}': repair it by INSERT INTO … SELECT, which "
            "writes only rows that differ; sys.repair is for aggregation tables"
        )
    if "rowkind.field" in table.options or any("sequence" in key for key in table.options):
        raise TableError(
            f"{where} merges by a sequence or reads row kinds from a column; repair it by INSERT "
            "OVERWRITE while no query writes it"
        )


def check_query(recorded: RecordedBatches, last: Batch) -> None:
    """Raise `TableError` for a query whose batches cannot be recomputed as a single batch.

    `last` is its last batch.
    """
    where = f"table {recorded.target.identifier}: one of its queries"
    spec = recorded.spec(last)
    if spec.source.connector == "mysql-cdc":
        raise TableError(
            f"{where} follows a MySQL table, whose history MySQL does not keep; copy the "
            "MySQL table into a Paimon table and compute this one from it, or "
            f"{_OVERWRITE}, which reads MySQL's current rows"
        )
    if spec.query.timed:
        raise TableError(
            f"{where} uses the time of the batch (PROCTIME(), CURRENT_TIMESTAMP, NOW(), "
            "CURRENT_DATE or the like), which was different in each of its batches; use a "
            f"time column of its source instead, or {_OVERWRITE}, which uses its own time"
        )
    if last.end.get("looked_up"):
        raise TableError(
            f"{where} looks up a table in MySQL (connector 'jdbc'), which does not keep its "
            f"rows as of the query's last commit; {_OVERWRITE}, which joins MySQL's current rows"
        )
