"""Change data capture from MySQL and MariaDB: a snapshot without locks, then the binlog."""

from streamhouse.mysql.source import MySqlSource

__all__ = ["MySqlSource"]
