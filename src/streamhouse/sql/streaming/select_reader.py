"""Reads a continuous query into a `StreamSelect` for each SELECT that UNION ALL combines.

Its names are resolved as those of a bounded query. Then the expressions of subqueries, WITH queries
and computed columns take the place of their names, so that one SELECT over the source remains. What
is around a UNION ALL is applied to each of its parts, also a sum, since the target adds up sums.
"""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TypeAlias

from sqlglot import exp

from streamhouse.close_matches import nearest
from streamhouse.errors import NotStreamedError, UnsupportedSqlError
from streamhouse.sql.batch.bounded_query import qualified
from streamhouse.sql.functions.expression_builders import current_time_name, quoted
from streamhouse.sql.parser import hints
from streamhouse.sql.plan import LookupJoin, Resolver, TableInfo
from streamhouse.sql.resolution import columns
from streamhouse.sql.resolution.as_of_clause import VERSIONED
from streamhouse.sql.resolution.columns import Parsed
from streamhouse.sql.select_parts import conjuncts, replaced_columns
from streamhouse.sql.streaming import row_number, streamed_clauses
from streamhouse.sql.streaming.stream_select import Lookup, StreamSelect, equalities
from streamhouse.sql.text import forget_places, span

_LOOKED_UP = "__looked_up_as_of"
"""The placeholder of a term of ON: a call with the time of the lookup, to be resolved with it."""
_MOST_NODES = 20_000
_Ctes: TypeAlias = Mapping[str, tuple[exp.Expr, "_Ctes"]]
_Columns: TypeAlias = dict[str, dict[str, exp.Expr]]
"""Each alias with its columns, by name, as expressions over the source and the lookups."""


def read_selects(parsed: Parsed, resolver: Resolver) -> list[StreamSelect]:
    """The SELECTs of a query whose views have been inlined; raises as `plan_stream_queries`."""
    tree = parsed.tree.unnest()
    streamed_clauses.check(parsed.script, tree)
    assert isinstance(tree, exp.Query)
    reader = _Reader(parsed, resolver)
    selects = reader.selects(reader.resolved(tree), {})
    for each in selects:
        if any(item.find(exp.Window) for item in each.items):
            raise NotStreamedError("a window function")
    return selects


class _Reader:
    """Reads the SELECTs of one query."""

    def __init__(self, parsed: Parsed, resolver: Resolver) -> None:
        self._parsed, self._script, self._resolver = parsed, parsed.script, resolver
        self._tables: dict[str, tuple[TableInfo, dict[str, str]]] = {}

    def resolved(self, tree: exp.Query) -> exp.Query:
        """The tree with relations `scan_n` in place of its tables, and all columns qualified."""
        relations = {}
        for number, table in enumerate(columns.leaves(tree)):
            info, relation = self._checked(table), f"scan_{number}"
            self._tables[relation] = info, columns.table_options(self._script, table)
            kinds = columns.physical(info)
            relations[relation] = {c.name: kinds.get(c.name, "UNKNOWN") for c in info.declared}
            version, join = table.args.get("version"), table.parent
            if version is not None and isinstance(join, exp.Join):
                term = exp.Anonymous(this=_LOOKED_UP, expressions=[version.expression])
                term.meta[_LOOKED_UP] = self._script.place_of(version.expression)
                join.set("on", exp.and_(join.args["on"], term, copy=False))
            alias = table.args.get("alias") or exp.TableAlias(this=table.this.copy())
            scan = exp.Table(this=quoted(relation), alias=alias.copy())
            scan.this.meta.update(table.this.meta)
            table.replace(scan)
        for named in tree.find_all(exp.TableAlias):
            # Columns without a table would get the place of its alias, too.
            named.this.meta.clear()
        return qualified(self._parsed, tree, relations)

    def _checked(self, node: exp.Table) -> TableInfo:
        """The table of a name, if a stream can read it or look it up there."""
        info = columns.resolve_table(self._script, node, self._resolver)
        which, can = f"table '{node.name}' (connector '{info.connector}')", info.capabilities
        refused = None
        if node.args.get("version") is not None:
            if not can.lookup:
                refused = (
                    f"{which} cannot be looked up; copy it to a Paimon table and look up that "
                    "one, or declare a MySQL table with 'connector' = 'jdbc'"
                )
        elif can.server:
            refused = (
                f"{which} reports no changes, so a stream cannot read it; declare it with "
                "'connector' = 'mysql-cdc', look it up (JOIN … FOR SYSTEM_TIME AS OF …), "
                "or run it once with SET 'execution.runtime-mode' = 'batch'"
            )
        elif not can.stream:
            refused = f"{which} can only be written"
        if refused is not None:
            raise self._script.unsupported(node, refused)
        columns.reserved(self._script, (column.name for column in info.columns), node)
        return info

    def selects(self, tree: exp.Expr, ctes: _Ctes) -> list[StreamSelect]:
        """The SELECTs that UNION ALL combines, with the column names of the first one."""
        tree = tree.unnest()
        with_ = tree.args.get("with_")
        for cte in () if with_ is None else with_.expressions:
            ctes = {**ctes, cte.alias: (cte.this, ctes)}
        if isinstance(tree, exp.SetOperation):
            found = [*self.selects(tree.this, ctes), *self.selects(tree.expression, ctes)]
            for each in found:
                if len(each.names) != len(found[0].names):
                    message = (
                        f"this part of UNION ALL returns {len(each.names)} column(s), the first "
                        f"part {len(found[0].names)}: {', '.join(found[0].names)}"
                    )
                    raise self._script.error_at(each.select, message)
                each.names = list(found[0].names)
            return found
        assert isinstance(tree, exp.Select)
        return [self._select(tree, *source) for source in self._sources(tree, ctes)]

    def _sources(self, select: exp.Select, ctes: _Ctes) -> Iterator[tuple[StreamSelect, _Columns]]:
        """What FROM reads, as yet without clauses of the SELECT, and the columns of its alias."""
        node = select.args["from_"].this
        alias = node.alias_or_name
        if isinstance(node, exp.Table) and node.name not in ctes:
            info, options = self._tables[node.name]
            visible = {alias: columns.visible_columns(info, alias)}
            script, zone = self._script, self._resolver.zone
            yield StreamSelect(script, zone, select, info, options, alias), visible
            return
        query, scope = ctes[node.name] if isinstance(node, exp.Table) else (node.this, ctes)
        for inner in self.selects(query, scope):
            if inner.aggregates:
                raise NotStreamedError("an aggregation in a subquery")
            yield inner, {alias: dict(zip(inner.names, inner.items, strict=True))}

    def _select(self, select: exp.Select, read: StreamSelect, visible: _Columns) -> StreamSelect:
        """Apply the clauses of a SELECT to what its FROM reads."""
        before, looked_up = list(read.where), {}
        for join in select.args.get("joins") or []:
            lookup = self._lookup(join, read, visible, before)
            read.lookups.append(lookup)
            looked_up[join.this.alias] = lookup
        self._apply_hints(select, looked_up)
        terms = [_over(visible, term) for term in conjuncts(select.args.get("where"))]
        for node in (node for term in terms for node in term.find_all(exp.AggFunc)):
            raise self._script.error_at(node, "an aggregate is not allowed in WHERE")
        window = row_number.first_of(terms)
        if window is not None:
            read.ranked = row_number.ranked(read, window)
            visible = {each: row_number.without(found) for each, found in visible.items()}
            terms = []
        group = select.args.get("group")
        read.select, read.visible = select, visible
        read.where += terms
        groups = () if group is None else group.expressions
        read.group = [_over(visible, item) for item in groups]
        read.names = columns.output_names(select.expressions)
        read.items = [_over(visible, item.unalias()) for item in select.expressions]
        if sum(1 for item in read.items for _ in item.walk()) > _MOST_NODES:
            raise NotStreamedError("a column that subqueries repeat in too many expressions")
        for name, item in zip(read.names, read.items, strict=True):
            columns.reserved(self._script, [name], item)
        conditions = [lookup.on for lookup in looked_up.values()]
        row_number.check_clauses(read, [*terms, *read.group, *conditions])
        if read.ranked is not None:
            inner = any(not lookup.join.left for lookup in looked_up.values())
            read.ranked.drops |= bool(terms or group or inner)
        return read

    def _lookup(
        self, join: exp.Join, read: StreamSelect, visible: _Columns, before: list[exp.Expr]
    ) -> Lookup:
        """A join; adds the columns of its table to those that are visible."""
        info, options = self._tables[join.this.name]
        taken = {read.alias.lower(), *(lookup.alias.lower() for lookup in read.lookups)}
        named = join.this.alias
        names = itertools.chain([named], (f"{named}_{n}" for n in itertools.count()))
        alias = next(name for name in names if name.lower() not in taken)
        visible[named] = columns.visible_columns(info, alias)
        terms = conjuncts(join.args["on"])
        for term in terms:
            if isinstance(term, exp.Anonymous) and term.name == _LOOKED_UP:
                self._check_time(term, visible)
        terms = [_over(visible, t) for t in terms if t.name != _LOOKED_UP]
        condition = exp.and_(*terms, copy=False)
        keys = tuple(equalities(condition, alias))
        if not keys:
            message = (
                f"ON needs an equality between a column of '{named}' and the stream; add one "
                "to the conditions"
            )
            raise self._script.unsupported(condition, message)
        left = join.side == "LEFT"
        plan = LookupJoin(info, f"dim_{len(read.lookups)}", (), keys, left, options=options)
        return Lookup(plan, alias, condition, before)

    def _check_time(self, term: exp.Expr, visible: _Columns) -> None:
        """Check that FOR SYSTEM_TIME AS OF has a processing-time column or PROCTIME()."""
        time = _over(visible, term.expressions[0])
        if current_time_name(time) != "PROCTIME":
            start, end = term.meta[_LOOKED_UP]
            message = (
                f"'{self._script.text[start:end]}' is not a processing-time column, and a join of "
                "a table as of another time is not supported, since a table has its newest rows; "
                f"name {VERSIONED}"
            )
            raise self._script.error(message, start, end, UnsupportedSqlError)

    def _apply_hints(self, select: exp.Select, lookups: Mapping[str, Lookup]) -> None:
        hint = select.args.get("hint")
        if hint is None:
            return
        body, start = hint.expressions[0].name, hint.meta["start"] + 3
        seen: set[str] = set()
        for given in hints.lookup_hints(self._script, body, start):
            matching = [a for a, k in lookups.items() if given.table in (a, k.join.table.name[-1])]
            if not matching:
                message = f"hint LOOKUP: no lookup join has the table '{given.table}'; "
                message += nearest(given.table, lookups)
                raise self._script.error(message, given.start, given.end)
            if len(matching) > 1 or matching[0] in seen:
                message = f"hint LOOKUP: '{given.table}' does not name exactly one join; "
                message += "use its alias"
                raise self._script.error(message, given.start, given.end)
            seen.add(matching[0])
            lookup = lookups[matching[0]]
            lookup.join = replace(
                lookup.join, retry=given.retry, strategy=given.strategy, ordered=given.ordered
            )


def _over(visible: _Columns, expression: exp.Expr) -> exp.Expr:
    """An expression over the source and the lookups; its parts have the places of the names."""

    def new(column: exp.Column) -> exp.Expr:
        known = visible.get(column.table, {}).get(column.name)
        if known is None:
            # DuckDB says what is wrong with it.
            return column
        found, place = known.copy(), span(column)
        forget_places(found)
        if place is not None:
            named = found.this if isinstance(found, exp.Column) else found
            named.meta.update(start=place[0], end=place[1] - 1)
        return exp.Paren(this=found) if isinstance(found, exp.Binary | exp.Unary) else found

    return replaced_columns(expression, new)
