"""The binlog's events, decoded; imports `server` only."""
