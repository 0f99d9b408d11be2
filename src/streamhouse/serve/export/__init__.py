"""A table or a view as a file."""
