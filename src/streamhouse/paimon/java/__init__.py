"""Paimon's Java core in a JVM of its own, for what the Rust core cannot do.

Imports `storage`, `schema` and `read`.
"""
