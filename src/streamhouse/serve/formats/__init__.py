"""Rows as JSON, CSV, Parquet and Arrow."""
