"""`streamhouse state`: lists the rows that views and lookups keep between batches."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from streamhouse.cli.flags import DEFAULT_WAREHOUSE, open_warehouse, with_flags

_COUNTS = ("rows", "bytes", "files")


@with_flags("state")
def state(
    view: str | None = None,
    warehouse: str = DEFAULT_WAREHOUSE,
    option: list[str] | None = None,
    checkpoints: Path | None = None,
    as_json: bool = False,
) -> None:
    """List what views and lookups keep: of which operator, how many rows, bytes and files.

    What is kept is a cache on the machines that run the query. Without it, a refresh recomputes the
    view, and a lookup reads its table again. Of a lookup, the process that keeps most is shown.
    """
    from streamhouse.runtime.views.kept_rows import kept_rows

    path = open_warehouse(warehouse, option).path
    listed = kept_rows(path, checkpoints, view)
    if as_json:
        print(json.dumps({"views": listed}, ensure_ascii=False))
    elif listed:
        from streamhouse.cli.output import print_listing

        print_listing(("view", "as of", "operator", *_COUNTS), _COUNTS, _rows(listed))
    else:
        print("no view keeps rows here, and no lookup; small views are recomputed")


def _rows(listed: list[dict[str, Any]]) -> Iterator[tuple[str, ...]]:
    for view in listed:
        of = ", ".join(f"{name} {number}" for name, number in view["snapshots"].items())
        names = (view["view"], of)
        for kept in view["kept"] or [{"operator": "nothing", "rows": 0, "bytes": 0, "files": 0}]:
            yield *names, kept["operator"], *(f"{kept[name]:,}" for name in _COUNTS)
            names = ("", "")
