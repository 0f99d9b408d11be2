"""Compaction and snapshot expiry beside the queries that write.

Imports `changelog` and what is below it.
"""
