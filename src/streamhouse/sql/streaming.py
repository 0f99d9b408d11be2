"""Whether a script is likely to have continuous queries, before any name in it is resolved."""

from __future__ import annotations

import re
from collections.abc import Sequence

from streamhouse.sql import plan

_MODE = "execution.runtime-mode"
_FROM = re.compile(r"\bFROM\b", re.IGNORECASE)


def may_stream(statements: Sequence[plan.Statement]) -> bool:
    """Whether an INSERT reads a table in streaming mode.

    It may still be bounded, over a table at one snapshot for instance: `analysis.ends` tells, once
    the tables are known.
    """
    streaming = True
    for statement in statements:
        match statement:
            case plan.SetOption(key=key, value=value) if key == _MODE:
                streaming = (value or "").lower() != "batch"
            case plan.ResetOption(key=key) if key in (None, _MODE):
                streaming = True
            case plan.Insert() if streaming and _reads(statement):
                return True
            case plan.StatementSet() if streaming and any(map(_reads, statement.inserts)):
                return True
    return False


def _reads(insert: plan.Insert) -> bool:
    return insert.query.rows is None and _FROM.search(insert.query.text) is not None
