"""Tables, views and columns of a query, found by name.

For continuous and bounded queries alike; knows neither.
"""
