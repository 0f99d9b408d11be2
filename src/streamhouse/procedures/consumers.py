"""Procedures for consumers, which record the progress of readers, and checks for live queries."""

import re
import time

import pyarrow as pa

from streamhouse.errors import OptionError, StreamhouseError, TableError
from streamhouse.paimon.changelog.consumers import QUERY, Consumers
from streamhouse.paimon.read.table import Table
from streamhouse.procedures.context import Context
from streamhouse.procedures.registry import procedure, rows

_LIVE_WITHIN_S = 60.0
"""Running queries refresh their consumers more often than this."""
_DONE = {"consumer_id": str, "next_snapshot_id": int, "result": str}


@procedure()
def reset_consumer(
    context: Context, table: str, consumer_id: str, next_snapshot_id: int | None = None
) -> pa.Table:
    """Move a consumer to another snapshot, or drop it if none is given.

    Returns `consumer_id`, `next_snapshot_id`, `result`. Refused for consumers of Streamhouse's own
    queries.
    """
    if consumer_id.startswith(QUERY):
        raise OptionError(
            f"consumer '{consumer_id}' belongs to a query of Streamhouse, which needs it to "
            "resume; if the query will never run again, drop it with sys.clear_consumers("
            f"'{table}', '{consumer_id}')"
        )

    found = context.table(table)
    if next_snapshot_id is None:
        Consumers(found).drop(consumer_id)
        return rows(_DONE, [(consumer_id, None, "removed")])
    snapshots = found.snapshots
    if snapshots.find(next_snapshot_id) is None:
        raise TableError(
            f"table {table} has no snapshot {next_snapshot_id}; "
            f"{snapshots.earliest_id()} to {snapshots.latest_id()} are left"
        )
    Consumers(found).hold(consumer_id, next_snapshot_id, back=True)
    return rows(_DONE, [(consumer_id, next_snapshot_id, "set")])


@procedure()
def clear_consumers(
    context: Context,
    table: str,
    including_consumers: str | None = None,
    excluding_consumers: str | None = None,
) -> pa.Table:
    """Drop consumers whose names match one regular expression and not another.

    Consumers of Streamhouse's own queries (`streamhouse-…`) stay, unless `including_consumers`
    names that prefix. Returns `consumer_id`, `next_snapshot_id`, `result` (removed or kept).
    """
    included = _pattern("including_consumers", including_consumers or ".*")
    excluded = _pattern("excluding_consumers", excluding_consumers or r"(?!)")
    including_queries = QUERY in (including_consumers or "")

    consumers, results = Consumers(context.table(table)), []
    for consumer in consumers.all():
        if not included.fullmatch(consumer.id) or excluded.fullmatch(consumer.id):
            continue
        removed = including_queries or not consumer.id.startswith(QUERY)
        if removed:
            consumers.drop(consumer.id)
        result = "removed" if removed else "kept: a query's own"
        results.append((consumer.id, consumer.next_snapshot, result))
    return rows(_DONE, results)


def refuse_if_held(table: Table, snapshot: int, procedure_name: str) -> None:
    """Raise `StreamhouseError` if a query of Streamhouse needs snapshots after `snapshot`.

    A query's consumer lags behind it a little, so every running query is taken to need them.
    """
    if snapshot == table.latest_snapshot_id():
        return
    table_consumers = Consumers(table)
    blocking = [
        consumer
        for consumer in table_consumers.all()
        if consumer.id.startswith(QUERY)
        and (consumer.next_snapshot > snapshot or _lives(table_consumers.refreshed_s(consumer.id)))
    ]
    if not blocking:
        return
    queries = ", ".join(f"{consumer.id} (at {consumer.next_snapshot})" for consumer in blocking)
    raise StreamhouseError(
        f"sys.{procedure_name}: queries may have read or written table {table.identifier} past "
        f"snapshot {snapshot}: {queries}; their rows would be lost for good, and "
        "readers would stop with a DataLossError. Stop them, give force => true, and start them "
        "from a fresh checkpoint afterwards"
    )


def _lives(refreshed_s: float | None) -> bool:
    return refreshed_s is not None and time.time() - refreshed_s < _LIVE_WITHIN_S


def _pattern(key: str, text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise OptionError(
            f"argument '{key}': '{text}' is not a regular expression: {error}"
        ) from None
