"""Sorts an append table along a space-filling curve: the procedure, and its tasks."""
