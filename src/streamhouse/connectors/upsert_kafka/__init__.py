"""The `upsert-kafka` connector: a topic as a table of the last record of each key."""
