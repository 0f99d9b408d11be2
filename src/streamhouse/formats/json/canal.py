"""The format `canal-json`."""

from streamhouse.formats.json.changelog import CANAL as FORMAT

__all__ = ["FORMAT"]
