"""Subqueries of conditions and expressions as joins, also those of columns around them."""
