"""Columns, types and options of a table: their names, and which can be combined.

Imports `storage` only.
"""
