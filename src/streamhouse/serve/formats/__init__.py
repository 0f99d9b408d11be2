"""Encodes rows as JSON, CSV, Parquet and Arrow."""
