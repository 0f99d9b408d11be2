"""Rows of a dimension in a worker process: in memory, in local files, and found by key."""
