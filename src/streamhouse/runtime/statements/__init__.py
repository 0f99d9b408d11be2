"""EXPLAIN, CALL, a streaming SELECT, and the plan of a continuous INSERT."""
