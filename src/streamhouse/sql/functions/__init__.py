"""The supported Flink functions, each with a builder of its DuckDB expression (`supported`)."""

from streamhouse.sql.functions.expression_builders import (
    CURRENT_TIMES,
    ArgumentError,
    call,
    cast,
    current_time,
    current_time_name,
)
from streamhouse.sql.functions.supported import BUILDERS, WINDOW_TABLES, check_count, known, unknown
from streamhouse.sql.functions.times import extract, rounded

__all__ = [
    "BUILDERS", "CURRENT_TIMES", "WINDOW_TABLES", "ArgumentError", "call", "cast", "check_count",
    "extract", "known", "current_time", "current_time_name", "rounded",
    "unknown",
]  # fmt: skip
