"""The `jdbc` connector: a MySQL table, looked up by key, read as a whole, or written."""
