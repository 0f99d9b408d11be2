"""Writing to a table and committing exactly once.

Imports `catalog` and what is below it.
"""
