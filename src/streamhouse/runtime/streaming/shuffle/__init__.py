"""Bucket shuffle: sends the rows of a batch to tasks by the buckets of one dimension.

It has two steps; small batches skip it (`small_batches`). First, tasks read the source and send
each row, in Arrow blocks, to the task that holds the bucket of its key (rows without a key go to
any task). Second, that task joins the row, and writes the result. Queries whose rows must keep
their order are not shuffled.

Imports `tasks` and the packages below `runtime.streaming`; the planner and the query import it.
"""
