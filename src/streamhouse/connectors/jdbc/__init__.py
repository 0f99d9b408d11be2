"""The `jdbc` connector: the current rows of a MySQL table, all or by key."""
