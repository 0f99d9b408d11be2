"""The MySQL tables of a declared table, one or several (shards): columns, offsets, batches."""
