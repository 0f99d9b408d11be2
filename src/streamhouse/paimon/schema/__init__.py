"""Columns, types and options of a table: what they are called, and which go together.

Imports `storage` only.
"""
