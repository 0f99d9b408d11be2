"""`streamhouse diff`: the rows of a view that its next query would change."""

import json
from collections.abc import Mapping
from typing import Any

import typer

from streamhouse.cli.flags import DEFAULT_WAREHOUSE, open_warehouse, script_variables, with_flags
from streamhouse.runtime.script_text import parse_scripts, read_scripts

_DIFFERS = 3
_KINDS = {"added": "+I", "changed": "+U", "removed": "-D"}


@with_flags("diff")
def diff(
    view: str,
    script: list[str] | None = None,
    warehouse: str = DEFAULT_WAREHOUSE,
    option: list[str] | None = None,
    variables: list[str] | None = None,
    limit: int = 20,
    as_json: bool = False,
) -> None:
    """Print the rows of a view that would change if its next query took over now.

    The next query is that of --script, or of a CREATE OR REPLACE or ALTER MATERIALIZED VIEW … AS
    that waits to take over. Changes nothing. The exit code is 0 if no row or column differs, 3 if
    one does, and 1 after an error.
    """
    from streamhouse.runtime.replacement.difference import view_difference

    options = open_warehouse(warehouse, option).options
    statements = None
    if script:
        statements, _ = parse_scripts(script, read_scripts(script, script_variables(variables)))
    found = view_difference(options, view, statements, limit)
    counts = {name: found.changes[kind] for name, kind in _KINDS.items()}
    columns = {"new_columns": found.new_columns, "dropped_columns": found.dropped_columns}
    if as_json:
        rows = [{"kind": kind, "row": row} for kind, row in found.first]
        record = {"view": view, "inputs": found.inputs, **counts, **columns, "rows": rows}
        print(json.dumps(record, default=str))
    else:
        _print(counts, columns, found)
    if not found.equal:
        raise typer.Exit(_DIFFERS)


def _print(counts: Mapping[str, int], columns: Mapping[str, tuple[str, ...]], found: Any) -> None:
    inputs = ", ".join(f"snapshot {number} of {table}" for table, number in found.inputs.items())
    rows = ", ".join(f"{count:,} {name}" for name, count in counts.items())
    print(f"{found.view}, computed from {inputs}: {rows}" if inputs else f"{found.view}: {rows}")
    for name, listed in columns.items():
        if listed:
            print(f"{name.replace('_', ' ')}: {', '.join(listed)}")
    for kind, row in found.first:
        print(f"{kind}  " + "  ".join(f"{name}={value}" for name, value in row.items()))
    if left := found.changes.total() - len(found.first):
        print(f"… and {left:,} more")
