"""The supported Flink functions, each with a builder of its DuckDB expression (`catalogue`)."""

from __future__ import annotations

from streamhouse.sql.functions.catalogue import BUILDERS, WINDOW_TABLES, known, unknown
from streamhouse.sql.functions.expression_builders import (
    MOMENTS,
    ArgumentError,
    call,
    cast,
    moment,
    moment_name,
)
from streamhouse.sql.functions.times import extract, rounded
from streamhouse.sql.functions.unsupported_functions import replacement_for

__all__ = [
    "BUILDERS", "MOMENTS", "WINDOW_TABLES", "ArgumentError", "call", "cast", "extract", "known",
    "moment", "moment_name", "replacement_for", "rounded", "unknown",
]  # fmt: skip
