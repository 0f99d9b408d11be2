"""Compaction and snapshot expiry, concurrently with the queries that write.

Imports `changelog` and the packages below it.
"""
