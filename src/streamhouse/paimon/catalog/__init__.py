"""Databases, tables and views of a warehouse: create, alter, drop, open.

Imports all of `paimon` that is below it: `storage`, `schema`, `read`, `java`.
"""
