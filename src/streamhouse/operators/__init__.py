"""The operators of continuous queries: what this project computes, one module per operator.

A continuous query is a tree of operators over its tables, from the scans up to the sink. Each one
is a frozen record of `operator.Operator`: it states its columns, keys, what it emits, what it
keeps, and has two forms as DuckDB SQL over its inputs, `whole` (all rows) and `delta` (changes).

`trees.recompute` is the floor of every view: it computes the whole result and writes what differs.
"""
