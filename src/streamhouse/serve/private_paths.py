"""Removes the warehouse's path from messages, so that clients do not learn server paths."""

from __future__ import annotations

import re

NAME = "the warehouse"


def hide_path(text: str, warehouse: str) -> str:
    """The message with the warehouse's path replaced by `NAME`, also without the leading `/`."""
    bare = re.escape(warehouse.strip("/"))
    if not bare:
        return text
    return re.sub(rf"(?<![\w/.-]){bare}(?=/)", NAME, text.replace(warehouse, NAME))
