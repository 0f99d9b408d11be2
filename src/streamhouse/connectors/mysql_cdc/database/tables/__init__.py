"""The MySQL tables of a source of many tables: filter, discovery, types, catalogues.

Imports nothing else of `database`.
"""
