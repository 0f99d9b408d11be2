"""DuckDB SQL for the keys that a chunk of source rows looks up in a dimension."""

from __future__ import annotations

from streamhouse.sql.expressions.binder import generate, quote
from streamhouse.sql.plan import LookupJoin
from streamhouse.sql.resolution.columns import physical
from streamhouse.sql.streaming.generated_sql import ROW, Stream, bound
from streamhouse.sql.streaming.query_blocks import Lookup
from streamhouse.sql.types import base

# Within a group, values that are equal in the comparison's type are equal in the column's own type.
# FLOAT and DOUBLE have no group: several BIGINTs become the same DOUBLE, and 0.0 equals -0.0.
_GROUPS = (
    ("TINYINT", "SMALLINT", "INT", "INTEGER", "BIGINT", "DECIMAL"),
    ("STRING", "VARCHAR", "CHAR"),
    ("BYTES", "BINARY", "VARBINARY"),
    ("BOOLEAN",),
    ("DATE", "TIMESTAMP"),
    ("TIME",),
    ("TIMESTAMP_LTZ",),
)


def lookup_join(stream: Stream, lookup: Lookup, columns: tuple[str, ...]) -> LookupJoin:
    """A lookup, with the SQL that returns the keys to look up; `columns`: those that are needed.

    Omits key columns whose type is not in the same group as the value's (see `same_group`).
    """
    column_types = {column.name: column.type for column in lookup.table.columns}
    value_types = dict(bound(stream, stream.lookup_values(lookup, lookup.keys)))
    names = tuple(name for name in lookup.keys if same_group(column_types[name], value_types[name]))
    keys_sql = row_keys_sql = None
    if names:
        types = physical(lookup.table)
        casts = ", ".join(f"TRY_CAST({quote(n)} AS {types[n]}) AS {quote(n)}" for n in names)
        not_null = " AND ".join(f"{quote(name)} IS NOT NULL" for name in names)
        values_sql = generate(stream.lookup_values(lookup, names))
        keys_sql = f"SELECT DISTINCT * FROM (SELECT {casts} FROM ({values_sql})) WHERE {not_null}"
        rows = stream.row_keys(lookup, names)
        if rows is not None:
            row_keys_sql = f"SELECT {quote(ROW)}, {casts} FROM ({generate(rows)})"
    return LookupJoin(
        lookup.table,
        lookup.relation,
        columns,
        lookup.keys,
        lookup.left,
        lookup.retry,
        lookup.options,
        lookup.strategy,
        lookup.ordered,
        names,
        keys_sql,
        row_keys_sql,
    )


def same_group(one: str, other: str) -> bool:
    """Whether comparing values of two types gives the same result as comparing in either type."""
    return any(base(one) in group and base(other) in group for group in _GROUPS)
