"""User-defined Python functions: their declarations, and calls of them in DuckDB.

Imports nothing else of `sql` but `types`; `plan` holds its declarations.
"""
