"""Reads and decodes the binlog; imports `server` only."""
