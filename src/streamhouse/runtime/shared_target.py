"""Several INSERTs of one pipeline into one table: each is a query with its own checkpoint.

The first query's checkpoint is named after the target. The name of each other one also has the
table that the query reads, as for the branches of a UNION ALL (`checkpoint.part_names`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from streamhouse.errors import UnsupportedSqlError
from streamhouse.runtime.query_spec import QuerySpec
from streamhouse.runtime.state.checkpoint import Checkpoint, source_before
from streamhouse.sql.plan import StreamQuery
from streamhouse.sql.syntax import Insert

if TYPE_CHECKING:
    from streamhouse.runtime.streaming.query import JobQuery


def own_name(
    statement: Insert,
    query: StreamQuery,
    name: str,
    place: tuple[Path, str, str],
    others: Sequence[JobQuery],
) -> str:
    """The checkpoint name of a query: `name`, or a name of its own if another query has that one.

    `place` holds the folder of checkpoints, the pipeline and the target. `others` are the queries
    of the INSERTs before this one. Raises `UnsupportedSqlError` if `name` was this query's in
    earlier runs: the INSERT that now stands before it would resume from its checkpoint.
    """
    root, pipeline, target = place
    path = Checkpoint(root, pipeline, name).path
    described = [other.description for other in others]
    other = next((candidate for candidate in described if candidate.checkpoint_path == path), None)
    # A query without a source of its own reads the tables of a join.
    if other is None or (other.source is not None and other.reads == query.source.name):
        return name
    longer_name = f"{target}+{'.'.join(query.source.name[-2:])}"
    source = source_before(root, pipeline, target)
    if (
        source == list(query.source.name)
        and not Checkpoint(root, pipeline, longer_name).path.exists()
    ):
        raise _error(
            statement,
            f"so far only the query over {query.source.name[-1]} has written {target}; put this "
            "INSERT before the others into that table, and it resumes where it stopped",
        )
    return longer_name


def check_apart(
    statement: Insert, spec: QuerySpec, checkpoint: Checkpoint, others: Sequence[JobQuery]
) -> None:
    """Raise `UnsupportedSqlError` if a query would share state with a query before it.

    State is the checkpoint or the table of pending rows.
    """
    target = spec.target.identifier
    if any(other.description.checkpoint_path == checkpoint.path for other in others):
        raise _error(
            statement,
            f"two INSERTs into {target} that read the same table would share a checkpoint; write "
            "one INSERT with UNION ALL, or SET 'pipeline.name' = '…' before the second",
        )
    if spec.pending is not None and any(spec.pending.identifier in o.tables for o in others):
        raise _error(
            statement,
            f"two INSERTs into {target} would share the rows that wait for a lookup, in "
            f"{spec.pending.identifier}; INSERT each into a separate table, and read those tables",
        )


def _error(statement: Insert, message: str) -> UnsupportedSqlError:
    return UnsupportedSqlError.at(statement.position, message)
