"""Module where Spark finds the data source in all sessions; see `streamhouse.thrift.source`."""

from streamhouse.thrift.source import ServedSource as DefaultSource

__all__ = ["DefaultSource"]
