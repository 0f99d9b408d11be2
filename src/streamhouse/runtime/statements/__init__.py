"""EXPLAIN, CALL, a streaming SELECT, and the plan and the start of a continuous INSERT."""
