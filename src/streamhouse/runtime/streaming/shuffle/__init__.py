"""Bucket shuffle: sends the rows of a batch to tasks by the buckets of one dimension.

It has two or three steps; small batches skip it (`blocks`). First, tasks read the source and send
each row, in Arrow blocks, to the task that holds the bucket of its key (rows without a key go to
any task). Second, that task joins the row. If the order of rows does not matter, it also writes the
result. Else a last task sorts all rows into the order of the source and writes them, so that
the changes of a key keep their order.

Imports `tasks` and the packages below `runtime.streaming`; the planner and the query import it.
"""
