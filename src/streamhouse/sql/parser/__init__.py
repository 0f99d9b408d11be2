"""Flink's dialect over sqlglot: tokens, trees, hints, and what cannot be read.

Knows no query and no statement; `statements` reads those.
"""
