"""User-defined Python functions: their declarations, and calls of them in DuckDB.

Of the other modules of `sql`, it imports only `types`; records of `plan` hold its declarations.
"""
