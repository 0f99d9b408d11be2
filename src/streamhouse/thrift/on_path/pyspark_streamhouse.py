"""Where Spark looks for data sources of all sessions; see `streamhouse.thrift.source`."""

from streamhouse.thrift.source import ServedSource as DefaultSource

__all__ = ["DefaultSource"]
