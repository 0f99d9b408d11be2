"""Several INSERTs of one pipeline into one table: each is a query with its own checkpoint.

The first query's checkpoint is named after the target. The name of each other one also has the
table that the query reads, as that of a branch of a UNION ALL.
"""

import json
from collections.abc import Sequence

from streamhouse.errors import UnsupportedSqlError
from streamhouse.runtime.query_spec import QuerySpec
from streamhouse.runtime.state.checkpoint import Checkpoint
from streamhouse.runtime.streaming.query import JobQuery
from streamhouse.sql.plan import StreamQuery
from streamhouse.sql.syntax import Insert


def checkpoint_names(
    statement: Insert,
    queries: Sequence[StreamQuery],
    own: Checkpoint,
    others: Sequence[JobQuery],
) -> list[str]:
    """The names of the checkpoints of an INSERT's queries, the branches of a UNION ALL.

    One is `own`, which has the name of the target: that of the query that had it before, else of
    the first one, unless a query of `others`, the INSERTs before this one, has it. The others also
    have the table that they read.
    So a branch or an INSERT can be added or removed, and the others resume from their checkpoints.
    Raises `UnsupportedSqlError` if the query that had the target's name before must have another.
    """
    target, record = own.path.name, own.previous()
    scan = json.loads(record["definition"])["query"].get("scan") if record else None
    before: list[str] | None = scan and scan["table"]["name"]
    names = [f"{target}+{'.'.join(query.source.name[-2:])}" for query in queries]
    sources = [list(query.source.name) for query in queries]
    main = len(sources) - 1 - sources[::-1].index(before) if before in sources else 0
    resumes = Checkpoint(own.root, own.pipeline, names[main]).path.exists()
    described = (other.description for other in others)
    first = next((each for each in described if each.checkpoint_path == own.path), None)
    if before is None or sources[main] == before or not resumes:
        # A query without a source of its own reads the tables of a join.
        if first is None or (first.source is not None and list(first.reads) == sources[main]):
            names[main] = target
        elif sources[main] == before and not resumes:
            raise UnsupportedSqlError.at(
                statement.position,
                f"so far only the query over {before[-1]} has written {target}; put this INSERT "
                "before the others into that table, and it resumes where it stopped",
            )
    return [
        name if names.index(name) == number else f"{name}+{number}"
        for number, name in enumerate(names)
    ]


def check_apart(
    statement: Insert, spec: QuerySpec, checkpoint: Checkpoint, others: Sequence[JobQuery]
) -> None:
    """Raise `UnsupportedSqlError` if a query would share state with a query before it.

    State is the checkpoint or the table of pending rows.
    """
    target = spec.target.identifier
    if any(other.description.checkpoint_path == checkpoint.path for other in others):
        raise UnsupportedSqlError.at(
            statement.position,
            f"two INSERTs into {target} that read the same table would share a checkpoint; write "
            "one INSERT with UNION ALL, or SET 'pipeline.name' = '…' before the second",
        )
    if spec.pending is not None and any(spec.pending.identifier in o.tables for o in others):
        raise UnsupportedSqlError.at(
            statement.position,
            f"two INSERTs into {target} would share the rows that wait for a lookup, in "
            f"{spec.pending.identifier}; INSERT each into a separate table, and read those tables",
        )
