"""Bounded statements: SELECT, INSERT, MERGE, UPDATE and DELETE over tables as they were
at one time."""
