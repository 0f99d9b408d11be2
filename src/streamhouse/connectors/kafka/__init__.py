"""The `kafka` connector: topics as sources and sinks, exactly once by offsets and transactions."""
