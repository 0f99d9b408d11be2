"""The relay log: one binlog connection for all tables of a pipeline. Imports `binlog`, `mysql`."""
