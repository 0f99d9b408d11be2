"""SQL scripts in Flink's dialect: statements, and queries as plans for an embedded engine."""
