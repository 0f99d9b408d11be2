"""Parts of `kafka.sink`: one producer call per record, the partitions, a retry after an outage."""
