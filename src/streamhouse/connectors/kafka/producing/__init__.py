"""How the sink produces: one call a record, to which partition, and again after an outage."""
