"""Served views: which tables and views of the warehouse a server exposes, and by which names."""
