"""A private Kafka broker for demos and tests: the process, with jars that are fetched once."""
