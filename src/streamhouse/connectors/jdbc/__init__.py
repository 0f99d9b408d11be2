"""The `jdbc` connector: a MySQL table as it is now, read whole or by key."""
