"""Progress messages of a demo without a live view."""

from __future__ import annotations

import sys


def print_progress(text: str | None) -> None:
    """Write a line to standard error, unless the text is empty or None."""
    if text:
        print(f"demo: {text}", file=sys.stderr, flush=True)
