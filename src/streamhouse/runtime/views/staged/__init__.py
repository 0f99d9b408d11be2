"""Refreshes of a view by several tasks, in stages between which Spark shuffles rows by key.

Imports the modules of `runtime.views` that read inputs and compute; the planner, the task and the
query import it.
"""
