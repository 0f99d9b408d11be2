"""Memory limits of DuckDB in this process; beyond them it spills to temporary files, or fails.

Options set other limits: of dimensions (`lookup.options`), responses and streams
(`serve.settings`).
"""

BOUNDED_QUERY = "1GB"
"""Of one bounded query (`duckdb_engine`); `streamhouse serve` has an option for its queries."""
CONTINUOUS_QUERY = "2GB"
"""Of one continuous query in one worker process (`runtime.query_operator`)."""
