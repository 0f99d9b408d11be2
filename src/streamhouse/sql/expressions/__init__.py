"""Flink's expressions in DuckDB's terms: values, types and errors as Flink has them."""
