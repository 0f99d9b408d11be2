"""Stores rows found by a hash, of lookups and of views: in memory, or in files that are mapped."""
