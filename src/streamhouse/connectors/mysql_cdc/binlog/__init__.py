"""Reads and decodes the binlog; imports `streamhouse.mysql` only."""
