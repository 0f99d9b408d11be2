"""Finds types of parts of a query by letting DuckDB bind them; sqlglot cannot infer all.

Also TYPEOF, whose result is the name of such a type.
"""

from collections.abc import Sequence

from duckdb.sqltypes import DuckDBPyType
from sqlglot import exp

from streamhouse.sql.expressions.binder import BindError, Relations, describe, generate
from streamhouse.sql.functions.expression_builders import call, cast
from streamhouse.sql.select_parts import clauses_of, sources, with_queries
from streamhouse.sql.types import base, column_type

_TIMES = ("TIMESTAMP", "TIMESTAMP_LTZ", "TIME")


def types(
    node: exp.Expr, parts: Sequence[exp.Expr], relations: Relations
) -> list[DuckDBPyType] | None:
    """DuckDB's types of `parts`, evaluated in the SELECT of `node`; None if it cannot bind them.

    The probe has that SELECT's FROM, joins and GROUP BY, and the WITH queries around it. In a
    correlated subquery it also has the FROM and joins of the queries around it.
    """
    column_types = [_of_column(part, node, relations) for part in parts]
    if all(column_types):
        return [DuckDBPyType(kind) for kind in column_types if kind]
    select = node.find_ancestor(exp.Select)
    # Constants need no FROM, which may be the many rows of the VALUES that they are in.
    reads = any(part.find(exp.Column, exp.Star) for part in parts)
    probe = exp.Select()
    if select is not None and reads:
        probe = clauses_of(select, "from_", "joins", "laterals", "group")
    probe.set(
        "expressions",
        [exp.alias_(part.copy(), f"part{index}") for index, part in enumerate(parts)],
    )
    probe.set("with_", with_queries(node.parent))
    for attempt in range(3):
        if attempt == 1:
            # GROUP BY may contain the part itself.
            probe.set("group", None)
        elif attempt == 2:
            _add_outer_sources(probe, select)
        try:
            return [kind for _, kind in describe(generate(probe), _read(probe, relations))]
        except (BindError, ValueError):
            continue
    return None


def type_name(node: exp.Typeof, relations: Relations, precision: int | None) -> exp.Expr | None:
    """Flink's name of the argument's type, without NOT NULL; None if the type is unknown.

    `precision` is the declared one of a TIMESTAMP or TIME, which DuckDB's types do not keep.
    """
    kinds = types(node, [node.this], relations)
    if kinds is None:
        return None
    try:
        name = column_type(kinds[0])
    except ValueError:
        return None
    if precision is not None and base(name) in _TIMES:
        name = f"{base(name)}({precision})"
    text = exp.Literal.string(name)
    if node.this.find(exp.AggFunc) is None:
        return cast(text, "VARCHAR")
    # Stays an aggregate, so that its query still returns one row per group.
    value = exp.Coalesce(this=call("ANY_VALUE", text), expressions=[text.copy()])
    return cast(value, "VARCHAR")


def _add_outer_sources(probe: exp.Select, select: exp.Select | None) -> None:
    """Join the tables that a correlated subquery sees besides its own."""
    inner: exp.Expr | None = select
    while inner is not None:
        outer = inner.parent
        while outer is not None and not isinstance(outer, exp.Select):
            if outer.arg_key in ("from_", "joins", "with_"):
                # A subquery in FROM sees nothing of the query around it.
                return
            outer = outer.parent
        clause = None if outer is None else outer.args.get("from_")
        if outer is not None and clause is not None:
            own = probe.args.get("from_")
            joins = [join.copy() for join in outer.args.get("joins") or []]
            if own is None:
                probe.set("from_", clause.copy())
            else:
                joins.insert(0, exp.Join(this=clause.this.copy(), kind="CROSS"))
            probe.set("joins", [*(probe.args.get("joins") or []), *joins])
        inner = outer


def _read(probe: exp.Select, relations: Relations) -> Relations:
    """The relations that a probe reads; others would only cost time."""
    names = {table.name for table in probe.find_all(exp.Table)}
    return {name: columns for name, columns in relations.items() if name in names}


def _of_column(part: exp.Expr, node: exp.Expr, relations: Relations) -> str | None:
    """The type of a plain column of a relation, without a probe; None for anything else."""
    inner, select = part.unnest(), node.find_ancestor(exp.Select)
    if not isinstance(inner, exp.Column) or select is None or select.args.get("from_") is None:
        return None
    for table in sources(select):
        if isinstance(table, exp.Table) and table.alias_or_name == inner.table:
            return relations.get(table.name, {}).get(inner.name)
    return None
