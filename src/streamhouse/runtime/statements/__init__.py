"""Statements that neither define nor write: EXPLAIN, CALL, and a streaming SELECT."""
