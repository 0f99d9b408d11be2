"""The operators of views: each computes its result from its inputs, and the changes of the result.

`recompute` is the one that every SELECT has: it computes the whole result anew.
"""
