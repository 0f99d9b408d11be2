"""Continuous queries: threads that plan micro-batches, their tasks, and exactly-once commits."""
