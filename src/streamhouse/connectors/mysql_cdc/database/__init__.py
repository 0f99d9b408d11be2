"""Many MySQL tables as one source: discovery, types, and batches with one binlog position."""
