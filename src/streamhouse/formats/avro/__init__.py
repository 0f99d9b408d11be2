"""The formats `avro` and `avro-confluent`."""
