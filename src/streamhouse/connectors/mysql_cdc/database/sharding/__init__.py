"""Several MySQL tables, the shards, as one declared table: their columns, offsets and stream."""
