"""Lists the procedures, and runs one by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

from streamhouse.procedures.context import Context
from streamhouse.procedures.registry import PROCEDURES, find
from streamhouse.procedures.result_rows import rows
from streamhouse.sql.syntax import Argument


def listed() -> pa.Table:
    """All procedures: `procedure`, `arguments` (optional ones in brackets), `what` it does."""
    return rows(
        {"procedure": str, "arguments": str, "what": str},
        [
            (name, procedure.signature, procedure.summary)
            for name, procedure in sorted(PROCEDURES.items())
        ],
    )


def run(
    context: Context,
    procedure: str,
    arguments: Sequence[Argument],
    qualified: Callable[[str], str] = str,
) -> pa.Table:
    """Run `CALL sys.procedure(arguments)` and return its rows; `OptionError` for an unknown name.

    `qualified` resolves the name of a table, as written, to `database.table`.
    """
    match = find(procedure)
    values = match.bind(arguments)
    table = values.get("table")
    if isinstance(table, str) and not table.endswith(".*"):
        values["table"] = qualified(table)
    return match.call(context, values)
