"""A table as a stream: the changes of each snapshot, offsets, and consumers.

Imports `write` and the packages below it.
"""
