"""The format `debezium-json`."""

from streamhouse.formats.json.changelog import DEBEZIUM as FORMAT

__all__ = ["FORMAT"]
