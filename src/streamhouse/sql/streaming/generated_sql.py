"""Generates a continuous query's DuckDB SQL: its rows, its lookup misses and its lookup keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp
from sqlglot.optimizer.pushdown_projections import pushdown_projections

from streamhouse.sql import node_errors
from streamhouse.sql.expressions import lowering, timestamp_digits, zones
from streamhouse.sql.expressions.binder import BindError, describe, generate, quote, refusal
from streamhouse.sql.plan import LookupJoin, TableInfo
from streamhouse.sql.resolution.columns import physical
from streamhouse.sql.select_parts import conjuncts
from streamhouse.sql.streaming.query_blocks import Lookup, SelectBlock, equalities
from streamhouse.sql.streaming.retraction import retracts
from streamhouse.sql.text import Script
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


@dataclass(frozen=True)
class Stream:
    """Generates the SQL of one continuous query from its blocks and its source table."""

    script: Script
    top: SelectBlock
    source: TableInfo
    changelog: bool
    zone: str = zones.UTC

    @property
    def lookups(self) -> list[Lookup]:
        return [lookup for block in self.top.innermost_first() for lookup in block.lookups]

    @property
    def relations(self) -> dict[str, dict[str, str]]:
        """The columns of `src` and of each lookup's relation, with their DuckDB types."""
        source = {**physical(self.source), ROW: "BIGINT"}
        if self.changelog:
            source[ROW_KIND] = "VARCHAR"
        relations = {SOURCE: source}
        for lookup in self.lookups:
            relations[lookup.relation] = physical(lookup.table)
        return relations

    @property
    def declared(self) -> timestamp_digits.Declared:
        """The types of columns with times, with their precisions."""
        declared = {SOURCE: timestamp_digits.of_table(self.source)}
        for lookup in self.lookups:
            declared[lookup.relation] = timestamp_digits.of_table(lookup.table)
        return declared

    def rows(
        self,
        items: list[exp.Expr],
        names: list[str],
        carry_row: bool,
        ordered: bool = False,
        signed: bool = False,
        keep_row: bool = False,
    ) -> exp.Select:
        """The query with these projections (resolved in the outermost block) under these names.

        Over a changelog, `rowkind` is the last column, unless the projections are `signed` (have
        the row kind in their values). With `keep_row`, `_row` follows the projections. `ordered`
        sorts by `_row`; `carry_row` makes it visible to the projections.
        """
        carry_row = carry_row or ordered or keep_row
        carried = ([ROW] if carry_row else []) + ([ROW_KIND] if self.changelog else [])
        last = [ROW] if keep_row else []
        last += [ROW_KIND] if self.changelog and not signed else []
        select = _select(self.top, items, names, carried, last)
        if self.top.group:
            select.set("group", exp.Group(expressions=[g.copy() for g in self.top.group]))
        elif any(item.find(exp.AggFunc) for item in items):
            # Without input rows there is no output row, unlike in a bounded aggregation.
            count = exp.Count(this=exp.Star(), big_int=True)
            not_empty = exp.GT(this=count, expression=exp.Literal.number(0))
            select.set("having", exp.Having(this=not_empty))
        if ordered:
            row = exp.column(_name(ROW), _name(self.top.alias))
            select.set("order", exp.Order(expressions=[exp.Ordered(this=row)]))
        return self.translated(select)

    def translated(self, select: exp.Select) -> exp.Select:
        """The tree translated to DuckDB's terms, without unused columns in its subqueries."""
        lowered = lowering.lower(
            self.script, select, self.relations, False, self.declared, self.zone
        )
        pruned = pushdown_projections(lowered)
        assert isinstance(pruned, exp.Select)
        return pruned

    def misses(self) -> exp.Expr | None:
        """`_row` of the rows that miss a lookup with a retry policy; None if no lookup has one."""
        selects: list[exp.Select] = []
        for block in self.top.innermost_first():
            for index, lookup in enumerate(block.lookups):
                if lookup.retry is not None:
                    selects.append(self.translated(self._missed_rows(block, index)))
        if not selects:
            return None
        if len(selects) == 1:
            return selects[0]
        tree: exp.Query = selects[0]
        for other in selects[1:]:
            tree = exp.Union(this=tree, expression=other, distinct=True)
        return tree

    def _missed_rows(self, block: SelectBlock, index: int) -> exp.Select:
        row = exp.column(_name(ROW), _name(block.alias))
        select = exp.Select(expressions=[exp.alias_(row, _name(ROW))])
        kept = block.kept is not None
        select.set("from_", exp.From(this=_source(block, [ROW, ROW_KIND] if kept else [ROW])))
        joins = [_join(lookup, lookup.left) for lookup in block.lookups[:index]]
        missed = _join(block.lookups[index], False)
        missed.set("side", None)
        missed.set("kind", "ANTI")
        select.set("joins", [*joins, missed])
        self._filter(select, block)
        if kept:
            select.where(exp.Not(this=retracts(block.alias)), copy=False)
        if len(self.lookups) > 1:
            select.set("distinct", exp.Distinct())
        return select

    def lookup_values(
        self, lookup: Lookup, key: Sequence[str], alone: bool = False
    ) -> exp.Select | None:
        """`_row`, and the values that it looks up in `key`, columns of a lookup's table.

        They are the other sides of the equalities in ON, named as the columns of `key`. The query
        reads `src` and the lookups before this one, or `src` `alone`: then it is None if a value
        depends on the result of another lookup. It may omit rows that filters over the source drop.
        """
        block = next(level for level in self.top.innermost_first() if lookup in level.lookups)
        sides = equalities(lookup.on, lookup.alias)
        items = [exp.alias_(sides[name].copy(), _name(name)) for name in key]
        before = block.lookups[: block.lookups.index(lookup)]
        if alone:
            if any(inner.lookups for inner in block.innermost_first()[:-1]):
                return None
            if not all(_reads_only(item, block.alias) for item in items):
                return None
            before = []
        row = exp.alias_(exp.column(_name(ROW), _name(block.alias)), _name(ROW))
        select = exp.Select(expressions=[row, *items], from_=exp.From(this=_source(block, [ROW])))
        select.set("joins", [_join(join, join.left) for join in before])
        self._filter(select, block)
        return self.translated(select)

    def _filter(self, select: exp.Select, block: SelectBlock) -> None:
        """Add the filters of this block and enclosing ones that need only the source's columns."""
        own = [part for part in conjuncts(block.where) if _reads_only(part, block.alias)]
        filters = own + self._outer_filters(block)
        if filters:
            where = exp.and_(*(exp.Paren(this=part.copy()) for part in filters), copy=False)
            select.set("where", exp.Where(this=where))

    def _outer_filters(self, block: SelectBlock) -> list[exp.Expr]:
        """Filters of the enclosing blocks that need only this block's source columns."""
        filters = []
        blocks = self.top.innermost_first()
        for index in range(blocks.index(block) + 1, len(blocks)):
            for part in conjuncts(blocks[index].where):
                inner: exp.Expr | None = part.copy()
                for outer in reversed(blocks[blocks.index(block) + 1 : index + 1]):
                    inner = _pushed_down(inner, outer)
                if inner is not None and _reads_only(inner, block.alias):
                    filters.append(inner)
        return filters


def _pushed_down(part: exp.Expr | None, block: SelectBlock) -> exp.Expr | None:
    """A block's condition rewritten over the columns of the block below; None if it cannot be."""
    if part is None or block.below is None or not _reads_only(part, block.alias):
        return None
    wrapped: exp.Expr = exp.Paren(this=part)
    for column in list(wrapped.find_all(exp.Column)):
        column.replace(exp.Paren(this=block.below.definition(column.name).copy()))
    return wrapped


def _reads_only(part: exp.Expr, alias: str) -> bool:
    return all(column.table == alias for column in part.find_all(exp.Column))


def _name(text: str) -> exp.Identifier:
    return exp.to_identifier(text, quoted=True)


def _aliased(relation: str, alias: str) -> exp.Table:
    return exp.Table(this=_name(relation), alias=exp.TableAlias(this=_name(alias)))


def _select(
    block: SelectBlock, items: list[exp.Expr], names: list[str], carried: list[str], last: list[str]
) -> exp.Select:
    """A block's SELECT: it reads the `carried` columns from below and appends those of `last`."""
    projections = [
        exp.alias_(item.copy(), _name(name)) for item, name in zip(items, names, strict=True)
    ]
    for name in last:
        projections.append(exp.alias_(exp.column(_name(name), _name(block.alias)), _name(name)))
    select = exp.Select(expressions=projections)
    kept, where = block.kept is not None, block.kept or block.where
    if kept and ROW_KIND not in carried:
        carried = [*carried, ROW_KIND]
    select.set("from_", exp.From(this=_source(block, carried)))
    select.set("joins", [_join(lookup, lookup.left or kept) for lookup in block.lookups])
    if where is not None:
        select.set("where", exp.Where(this=where.copy()))
    return select


def _source(block: SelectBlock, carried: list[str]) -> exp.Expr:
    below = block.below
    if below is None:
        return _aliased(SOURCE, block.alias)
    inner = _select(below, below.items, below.names, carried, carried)
    return exp.Subquery(this=inner, alias=exp.TableAlias(this=_name(block.alias)))


def _join(lookup: Lookup, left: bool) -> exp.Join:
    join = exp.Join(this=_aliased(lookup.relation, lookup.alias), on=lookup.on.copy())
    if left:
        join.set("side", "LEFT")
    return join


def bound(stream: Stream, tree: exp.Expr) -> list[tuple[str, str]]:
    """Names and Flink types of a query's columns; `SqlError` if DuckDB cannot bind it."""
    try:
        columns = describe(generate(tree), stream.relations)
        return [(name, flink_type(kind)) for name, kind in columns]
    except (BindError, ValueError) as failure:
        start, end = node_errors.position_of(stream.script, stream.top.select)
        raise stream.script.error(str(failure), start, end, refusal(failure)) from None


def lookup_join(stream: Stream, lookup: Lookup, columns: tuple[str, ...]) -> LookupJoin:
    """A lookup, with the SQL that returns the keys to look up; `columns`: those that are needed.

    Omits key columns whose type is not in the same group as the value's (see `same_group`).
    """
    column_types = {column.name: column.type for column in lookup.table.columns}
    values = stream.lookup_values(lookup, lookup.keys)
    assert values is not None
    value_types = dict(bound(stream, values))
    names = tuple(name for name in lookup.keys if same_group(column_types[name], value_types[name]))
    keys_sql = row_keys_sql = None
    if names:
        types = physical(lookup.table)
        casts = ", ".join(f"TRY_CAST({quote(n)} AS {types[n]}) AS {quote(n)}" for n in names)
        not_null = " AND ".join(f"{quote(name)} IS NOT NULL" for name in names)
        values = stream.lookup_values(lookup, names)
        assert values is not None
        casted = f"SELECT {casts} FROM ({generate(values)})"
        keys_sql = f"SELECT DISTINCT * FROM ({casted}) WHERE {not_null}"
        rows = stream.lookup_values(lookup, names, alone=True)
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
