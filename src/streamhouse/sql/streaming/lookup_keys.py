"""DuckDB SQL for the keys that a chunk of source rows looks up in a dimension."""

from __future__ import annotations

from dataclasses import dataclass

from streamhouse.sql.expressions.binder import generate, quote
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


@dataclass(frozen=True)
class LookupKeys:
    """The fields of a `LookupJoin` of the same names."""

    key_columns: tuple[str, ...]
    keys_sql: str | None
    row_keys_sql: str | None


def lookup_keys(stream: Stream, lookup: Lookup) -> LookupKeys:
    """The keys of a lookup, and the SQL that returns the values to look up.

    Omits key columns whose type is not in the same group as the value's (see `same_group`).
    """
    column_types = {column.name: column.type for column in lookup.table.columns}
    value_types = dict(bound(stream, stream.lookup_values(lookup, lookup.keys)))
    names = tuple(name for name in lookup.keys if same_group(column_types[name], value_types[name]))
    if not names:
        return LookupKeys((), None, None)
    types = physical(lookup.table)
    casts = ", ".join(f"TRY_CAST({quote(n)} AS {types[n]}) AS {quote(n)}" for n in names)
    not_null = " AND ".join(f"{quote(name)} IS NOT NULL" for name in names)
    values_sql = generate(stream.lookup_values(lookup, names))
    rows = stream.row_keys(lookup, names)
    return LookupKeys(
        names,
        f"SELECT DISTINCT * FROM (SELECT {casts} FROM ({values_sql})) WHERE {not_null}",
        None if rows is None else f"SELECT {quote(ROW)}, {casts} FROM ({generate(rows)})",
    )


def same_group(one: str, other: str) -> bool:
    """Whether comparing values of two types gives the same result as comparing in either type."""
    return any(base(one) in group and base(other) in group for group in _GROUPS)
