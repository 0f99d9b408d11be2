"""Flink's dialect over sqlglot: tokens, trees, hints, errors for unsupported syntax.

Parses single queries and expressions; `statements` parses the statements around them.
"""
