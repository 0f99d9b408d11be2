"""Changes computed from two states of a table, for tables without changelog files; repairs."""
