"""Stores rows of a dimension in a worker process: in memory or in local files, found by key."""
