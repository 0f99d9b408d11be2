"""Statements that end: SELECT, INSERT, MERGE, UPDATE, DELETE and TRUNCATE."""
