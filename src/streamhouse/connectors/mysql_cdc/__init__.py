"""The `mysql-cdc` connector: a snapshot without locks, then the binlog."""
