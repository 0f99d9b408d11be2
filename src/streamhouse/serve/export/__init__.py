"""Exports a table or a view to a file, which is replaced atomically."""
