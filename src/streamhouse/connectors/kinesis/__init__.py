"""The `kinesis` connector: records of an Amazon Kinesis data stream, shard by shard."""
