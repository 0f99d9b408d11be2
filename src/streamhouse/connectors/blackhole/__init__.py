"""The `blackhole` connector: discards all rows."""
