"""Feeds: the state of a table or view, then each of its changes, read from the warehouse."""
