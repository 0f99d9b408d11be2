"""`streamhouse replay`: has bad records or late rows read again."""

import json

from streamhouse.cli.flags import DEFAULT_WAREHOUSE, open_warehouse, with_flags


@with_flags("replay")
def replay(
    table: str,
    warehouse: str = DEFAULT_WAREHOUSE,
    option: list[str] | None = None,
    as_json: bool = False,
) -> None:
    """Have the queries that left out bad records or late rows read them again, each once.

    Correct the script first if records are bad. The next run of a query, or the running one, reads
    the records together with new ones, in one of its batches. Records that are still bad get into
    the table again. Late rows correct their windows; a target that takes inserts only gets the
    corrected windows once more.
    """
    from streamhouse.runtime.replay_requests import request_replay

    counts = request_replay(open_warehouse(warehouse, option).options, table)
    total = sum(counts.values())
    if as_json:
        print(json.dumps({"records": total, "queries": len(counts)}))
    elif not total:
        print(f"{table}: no records are left to replay")
    else:
        plural = "query reads" if len(counts) == 1 else "queries read"
        print(
            f"{table}: {len(counts)} {plural} {total:,} records again, at once or when it next runs"
        )
