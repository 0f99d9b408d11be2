"""A MySQL or MariaDB server for any client: connections, options, tables, types, positions."""
