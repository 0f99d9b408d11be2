"""Tables, views and columns of a query, found by name.

Serves continuous and bounded queries, and imports the analysis of neither.
"""
