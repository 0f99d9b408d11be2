"""Exactly-once writes to a table: data files and commits.

Imports `catalog` and the packages below it.
"""
