"""Continuous queries: plans, retraction, grouping and the DuckDB SQL of a micro-batch."""
