"""CALL in a script: runs procedures on its catalogs, in its Spark session."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

import streamhouse.runtime.audit.repair_procedure  # noqa: F401  # makes sys.repair known
from streamhouse.procedures.context import Context
from streamhouse.procedures.registry import run
from streamhouse.runtime.session.session import Session
from streamhouse.runtime.spark.settings import SparkOptions
from streamhouse.sql.syntax import Call

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class ProcedureCalls:
    """Runs the CALL statements of one script; they share one Java core per catalog.

    A procedure that needs Spark uses the script's own session, or starts it.
    """

    def __init__(self, session: Session, spark: SparkOptions) -> None:
        self._session = session
        self._options = spark
        self._contexts: dict[str, Context] = {}

    def run(self, statement: Call) -> pa.Table:
        """Run a CALL and return its rows; an unqualified table is in the current database."""
        catalog, _, _ = self._session.full(("t",))
        catalog = statement.catalog or catalog
        if catalog not in self._contexts:
            options = self._session.catalogs.options(catalog)
            self._contexts[catalog] = Context(options, self._spark)
        return run(
            self._contexts[catalog], statement.procedure, statement.arguments, self._qualified
        )

    def close(self) -> None:
        """Stop the Java cores."""
        for context in self._contexts.values():
            context.close()
        self._contexts = {}

    def _qualified(self, table: str) -> str:
        return ".".join(self._session.full(tuple(table.split(".")))[-2:])

    def _spark(self) -> SparkSession:
        from streamhouse.runtime.spark.session import check_cluster, start_session

        spark = start_session("streamhouse", self._options)
        warehouses = [context.warehouse.options for context in self._contexts.values()]
        check_cluster(spark, self._options, warehouses, self._session.notice)
        return spark
