"""The tables and views that a server serves, and under which names."""
