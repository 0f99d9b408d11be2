"""Formats of records: `json`, `csv`, `raw` and others, between bytes and Arrow columns."""
