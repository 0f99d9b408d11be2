"""Translates Flink's expressions to DuckDB's, with Flink's values, types and errors."""
