"""The SQL statements of a binlog: tokens, tables that a statement affects, columns it alters."""
