"""Queries and changes that end: SELECT, INSERT, MERGE, UPDATE, DELETE as of one moment."""
