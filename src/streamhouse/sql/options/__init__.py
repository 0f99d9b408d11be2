"""Keys and values that scripts set (SET, WITH, CREATE CATALOG), in all their releases."""
