"""Bounded statements: SELECT, INSERT, MERGE, UPDATE and DELETE over tables as of one moment."""
