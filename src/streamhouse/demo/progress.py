"""What a demo says where it has no screen."""

from __future__ import annotations

import sys


def tell(text: str | None) -> None:
    """Write a line on standard error; nothing for nothing."""
    if text:
        print(f"demo: {text}", file=sys.stderr, flush=True)
