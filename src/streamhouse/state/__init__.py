"""Stores rows that views keep between refreshes, in files that processes map; only a cache."""
