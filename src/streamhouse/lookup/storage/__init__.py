"""Reads rows of a dimension by key, and finds out which of them change; caches single keys."""
