"""One table as its readers see it: splits, merged rows, time travel, system tables.

Imports `storage` and `schema`.
"""
