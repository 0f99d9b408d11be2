"""Continuous queries as Spark streaming queries: planning, tasks and exactly-once commits."""
