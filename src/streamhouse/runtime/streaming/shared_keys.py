"""Keys of the target that several rows of the source may have."""

from __future__ import annotations

from streamhouse.runtime.query_spec import QuerySpec


def shared_keys(spec: QuerySpec) -> str | None:
    """A notice if rows of the source with different keys may have one key of the target; else None.

    See `streamhouse.sql.streaming.key_moves`.
    """
    if not spec.query.reorder_key:
        return None
    sink = spec.sink
    key = ", ".join(spec.target.planned().primary_key if sink is None else sink.primary_key)
    source, target = ".".join(spec.query.source.name[-2:]), spec.target.identifier
    return (
        f"the key of {target} ({key}) does not include the key of {source} "
        f"({', '.join(spec.query.reorder_key)}), so several rows of {source} could have one key of "
        f"{target}: the last change of the key counts, and if its row goes, the others are not "
        f"written again. Make sure that ({key}) is unique in {source}"
    )
