"""The MySQL tables of a source of many tables: filter, discovery, types, table sets.

Imports nothing else of `database` than `progress`.
"""
