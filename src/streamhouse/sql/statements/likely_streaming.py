"""Whether a script is likely to have continuous queries, told from its text alone."""

from __future__ import annotations

import re

_READING_INSERT = re.compile(r"\bINSERT\s+INTO\b[^;]*\bFROM\b", re.IGNORECASE)
_BATCH = re.compile(r"'execution\.runtime-mode'\s*=\s*'batch'", re.IGNORECASE)


def may_stream(script: str) -> bool:
    """Whether an INSERT may read a table in streaming mode.

    It takes no parser, so that Spark can be started before one is loaded. A wrong answer costs
    time: the queries are what `analysis` makes of them.
    """
    return _READING_INSERT.search(script) is not None and _BATCH.search(script) is None
