"""Bounded (batch) statements: SELECT, INSERT, MERGE, UPDATE, DELETE and TRUNCATE."""
