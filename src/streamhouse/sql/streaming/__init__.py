"""Continuous queries: analysis, retraction, grouping and the DuckDB SQL of a micro-batch."""
