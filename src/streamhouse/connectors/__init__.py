"""Connectors: a folder each, which `registry` finds by its name.

A folder imports `base`, what the connector is made of, and other connectors that it builds on.
"""
