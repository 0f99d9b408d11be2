"""A script as a list of statements, each a record of `sql.syntax`."""
