"""Runs scripts: continuous queries on Spark, and bounded (batch) statements.

All commands import this package. It imports no package above `procedures`.
"""
