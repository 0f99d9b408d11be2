"""The Spark data source `paimon`: batch and streaming reads and writes.

Imports all of `paimon` but `maintenance`.
"""
