"""Generates a continuous query's DuckDB SQL: its rows, its lookup misses and its lookup keys."""

from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from streamhouse.sql.batch import bounded_query
from streamhouse.sql.expressions import lowering, timestamp_digits
from streamhouse.sql.expressions.binder import generate, quote
from streamhouse.sql.functions.expression_builders import cast, column_of, quoted
from streamhouse.sql.plan import LookupJoin, TableInfo
from streamhouse.sql.resolution.columns import columns_read, physical, used_columns
from streamhouse.sql.select_parts import relation
from streamhouse.sql.streaming.retraction import retracts
from streamhouse.sql.streaming.stream_select import Lookup, StreamSelect, equalities
from streamhouse.sql.types import base, flink_type

SOURCE = "src"
ROW = "_row"
ROW_KIND = "rowkind"
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


def _tables(top: StreamSelect) -> dict[str, TableInfo]:
    """The tables of `src` and of each lookup's relation."""
    return {SOURCE: top.source, **{each.join.relation: each.join.table for each in top.lookups}}


def _relations(top: StreamSelect) -> dict[str, dict[str, str]]:
    """Their columns, with the DuckDB types of these."""
    relations = {name: physical(table) for name, table in _tables(top).items()}
    relations[SOURCE][ROW] = "BIGINT"
    if top.source.changelog:
        relations[SOURCE][ROW_KIND] = "VARCHAR"
    return relations


def rows(
    top: StreamSelect,
    items: Sequence[exp.Expr],
    names: Sequence[str],
    signed: bool = False,
    keep_row: bool = False,
) -> exp.Select:
    """The query with these projections under these names.

    Over a changelog, `rowkind` is the last column, unless the projections are `signed` (have
    the row kind in their values). With `keep_row`, `_row` follows the projections.
    """
    last = [ROW] if keep_row else []
    last += [ROW_KIND] if top.source.changelog and not signed else []
    own = [column_of(top.alias, name) for name in last]
    select = _select(top, [*items, *own], [*names, *last], top.lookups, top.where, top.lets_pass)
    if top.group:
        groups = [_not_a_place(item) for item in top.group]
        select.set("group", exp.Group(expressions=groups))
    elif any(item.find(exp.AggFunc) for item in items):
        # Without input rows there is no output row, unlike in a bounded aggregation.
        count = exp.Count(this=exp.Star(), big_int=True)
        not_empty = exp.GT(this=count, expression=exp.Literal.number(0))
        select.set("having", exp.Having(this=not_empty))
    return _translated(top, select)


def _select(
    top: StreamSelect,
    items: Sequence[exp.Expr],
    names: Sequence[str],
    lookups: Sequence[Lookup],
    where: Sequence[exp.Expr],
    outer: bool = False,
) -> exp.Select:
    """Projections of the source's rows with the partners that lookups find, not translated."""
    pairs = zip(items, names, strict=True)
    select = exp.Select(expressions=[exp.alias_(i.copy(), quoted(name)) for i, name in pairs])
    select.set("from_", exp.From(this=relation(SOURCE, top.alias)))
    select.set("joins", [_join(each, each.join.left or outer) for each in lookups])
    if where:
        terms = (exp.Paren(this=term.copy()) for term in where)
        select.set("where", exp.Where(this=exp.and_(*terms, copy=False)))
    return select


def _translated(top: StreamSelect, select: exp.Select) -> exp.Select:
    """The tree translated to DuckDB's terms."""
    declared = {name: timestamp_digits.of_table(table) for name, table in _tables(top).items()}
    lowered = lowering.lower(top.script, select, _relations(top), False, declared, top.zone)
    assert isinstance(lowered, exp.Select)
    return lowered


def misses(top: StreamSelect) -> exp.Expr | None:
    """`_row` of the rows that miss a lookup with a retry policy; None if no lookup has one."""
    numbered = enumerate(top.lookups)
    selects = [_missed_rows(top, n) for n, lookup in numbered if lookup.join.retry is not None]
    if not selects:
        return None
    tree: exp.Query = selects[0]
    for other in selects[1:]:
        tree = exp.Union(this=tree, expression=other, distinct=True)
    return tree


def _missed_rows(top: StreamSelect, index: int) -> exp.Select:
    lookup = top.lookups[index]
    where = _known_before(top, lookup)
    if top.lets_pass:
        where.append(exp.Not(this=retracts(top.alias)))
    row = column_of(top.alias, ROW)
    select = _select(top, [row], [ROW], top.lookups[:index], where)
    missed = _join(lookup, False)
    missed.set("kind", "ANTI")
    select.append("joins", missed)
    if len(top.lookups) > 1:
        select.set("distinct", exp.Distinct())
    return _translated(top, select)


def _known_before(top: StreamSelect, lookup: Lookup) -> list[exp.Expr]:
    """The filters over the source, and those of the subqueries that a lookup joins."""
    own = [term for term in top.where if not top.reads_lookup(term)]
    return own + [term for term in lookup.before if top.reads_lookup(term)]


def _lookup_values(
    top: StreamSelect, lookup: Lookup, key: Sequence[str], alone: bool = False
) -> exp.Select | None:
    """`_row`, and the values that it looks up in `key`, columns of a lookup's table.

    They are the other sides of the equalities in ON, named as the columns of `key`. The query
    reads `src` and the lookups before this one, or `src` `alone`: then it is None if a value
    depends on the result of another lookup. It may omit rows that filters over the source drop.
    """
    sides = equalities(lookup.on, lookup.alias)
    items = [sides[name] for name in key]
    before = top.lookups[: top.lookups.index(lookup)]
    where = _known_before(top, lookup)
    if alone:
        if any(map(top.reads_lookup, items)):
            return None
        before, where = [], [term for term in where if not top.reads_lookup(term)]
    items.insert(0, column_of(top.alias, ROW))
    return _translated(top, _select(top, items, [ROW, *key], before, where))


def _not_a_place(item: exp.Expr) -> exp.Expr:
    """An expression of GROUP BY; DuckDB takes a bare number for the place of a column."""
    is_number = isinstance(item.unnest(), exp.Literal)
    return cast(item.copy(), "INT") if is_number and item.unnest().is_int else item.copy()


def _join(lookup: Lookup, left: bool) -> exp.Join:
    join = exp.Join(this=relation(lookup.join.relation, lookup.alias), on=lookup.on.copy())
    if left:
        join.set("side", "LEFT")
    return join


def bound(top: StreamSelect, tree: exp.Expr) -> list[tuple[str, str]]:
    """Names and Flink types of a query's columns; `SqlError` if DuckDB cannot bind it."""
    return bounded_query.bound(top.script, top.select, tree, _relations(top), flink_type)


def lookup_join(top: StreamSelect, lookup: Lookup, trees: list[exp.Expr]) -> LookupJoin:
    """A lookup, with the SQL that returns the keys to look up; `trees` are what reads its columns.

    Omits key columns whose type is not in the same group as the value's (see `same_group`).
    """
    join = lookup.join
    used = used_columns(columns_read(trees), join.relation, join.table)
    join = replace(join, columns=used)
    types = physical(join.table)
    column_types = {column.name: column.type for column in join.table.columns}
    values = _lookup_values(top, lookup, join.keys)
    assert values is not None
    value_types = dict(bound(top, values))
    names = tuple(name for name in join.keys if same_group(column_types[name], value_types[name]))
    if not names:
        return join
    casts = ", ".join(f"TRY_CAST({quote(n)} AS {types[n]}) AS {quote(n)}" for n in names)
    not_null = " AND ".join(f"{quote(name)} IS NOT NULL" for name in names)
    keys_sql = f"SELECT DISTINCT * FROM (SELECT {casts} FROM ({generate(values)})) WHERE {not_null}"
    rows = _lookup_values(top, lookup, names, alone=True)
    row_keys = None if rows is None else f"SELECT {quote(ROW)}, {casts} FROM ({generate(rows)})"
    return replace(join, key_columns=names, keys_sql=keys_sql, row_keys_sql=row_keys)


def same_group(one: str, other: str) -> bool:
    """Whether comparing values of two types gives the same result as comparing in either type."""
    return any(base(one) in group and base(other) in group for group in _GROUPS)
