"""Sorting an append table along a curve: the procedure, and its tasks."""
