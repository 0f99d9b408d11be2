"""A MySQL or MariaDB server: connections, tables, column types, keys, positions in its binlog."""
