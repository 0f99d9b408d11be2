"""Runs scripts: continuous queries on Spark, and statements that end.

All commands import it; it imports nothing above `procedures`.
"""
