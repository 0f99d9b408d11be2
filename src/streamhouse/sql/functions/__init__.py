"""The supported Flink functions, each with a builder of its DuckDB expression (`supported`)."""
