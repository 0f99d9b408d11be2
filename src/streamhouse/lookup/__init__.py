"""Lookup joins: rows of a dimension table for the keys of a micro-batch, by snapshot.

Runs in the worker processes; imports `connectors` and `paimon`, and nothing of `runtime`.
"""
