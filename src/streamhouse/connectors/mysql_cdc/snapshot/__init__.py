"""The snapshot of a table, read as of one position of the binlog, in chunks of its key."""
