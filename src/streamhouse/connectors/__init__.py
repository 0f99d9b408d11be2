"""Connectors: a folder each, which `registry` finds by its name.

A connector's folder imports `base`, its own modules, and other connectors that it builds on.
"""
