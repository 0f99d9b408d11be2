"""Where things are on the server's machine, which is nobody's to know who only asks it."""

from __future__ import annotations

import re

NAME = "the warehouse"


def placeless(text: str, warehouse: str) -> str:
    """A message without the place of the warehouse, also where a library left out its first `/`."""
    bare = re.escape(warehouse.strip("/"))
    if not bare:
        return text
    return re.sub(rf"(?<![\w/.-]){bare}(?=/)", NAME, text.replace(warehouse, NAME))
