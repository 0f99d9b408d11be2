"""A private Kafka broker for demos and tests: its jars, and the process."""
