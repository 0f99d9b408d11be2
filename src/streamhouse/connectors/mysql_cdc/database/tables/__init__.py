"""The MySQL tables that a source of many tables follows: filter, discovery, types, catalogues.

Imports nothing else of `database`.

"""
