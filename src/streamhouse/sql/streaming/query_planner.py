"""Analysis of a continuous query: from its text to `StreamQuery`s that run in DuckDB."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from sqlglot import exp

from streamhouse.errors import NotStreamedError
from streamhouse.sql.expressions.binder import generate, quote
from streamhouse.sql.expressions.zones import UTC
from streamhouse.sql.functions.expression_builders import column_of
from streamhouse.sql.nesting_depth import limited_depth
from streamhouse.sql.options.merge_functions import merge_function
from streamhouse.sql.plan import (
    Column,
    LookupJoin,
    Merging,
    OutputRows,
    Resolver,
    StreamQuery,
    StreamScan,
    TableInfo,
)
from streamhouse.sql.resolution import columns as names
from streamhouse.sql.resolution import insert_target as targets
from streamhouse.sql.resolution import versions
from streamhouse.sql.resolution.insert_target import ColumnMapping
from streamhouse.sql.resolution.view_expansion import inlined
from streamhouse.sql.streaming import (
    changing_rows,
    group_by_check,
    key_moves,
    retraction,
    row_number,
    union_all,
    unpaired_retractions,
    upsert_source,
)
from streamhouse.sql.streaming.generated_sql import (
    ROW,
    ROW_KIND,
    SOURCE,
    Stream,
    bound,
    lookup_join,
)
from streamhouse.sql.streaming.passthrough_columns import passthrough_columns
from streamhouse.sql.streaming.select_reader import read_selects
from streamhouse.sql.streaming.stream_select import StreamSelect
from streamhouse.sql.syntax import Query
from streamhouse.sql.text import span
from streamhouse.sql.udf.call import functions_in

_NO_VALUES: Mapping[str, str] = MappingProxyType({})


def is_bounded(query: Query, resolver: Resolver) -> bool:
    """Whether a query is bounded in every runtime mode.

    It is if it is a VALUES list, or if every table it reads is a system table or is read as of a
    fixed point in time (time travel).
    """
    if query.rows is not None:
        return True
    with limited_depth(query):
        tree = inlined(names.parse_query(query), resolver).tree
    return all(_is_fixed(table) for table in names.leaves(tree))


def _is_fixed(table: exp.Table) -> bool:
    _, _, system = table.name.replace("$branch_", "", 1).partition("$")
    version = table.args.get("version")
    return bool(system) or (version is not None and version.find(exp.Column) is None)


def plan_stream_queries(
    query: Query,
    resolver: Resolver,
    target: TableInfo | None = None,
    columns: tuple[str, ...] = (),
    fixed: Mapping[str, str] = _NO_VALUES,
) -> list[StreamQuery]:
    """Compile a SELECT over streaming sources to DuckDB SQL over `src` and `dim_0`, `dim_1`, ….

    Returns one query per source table: UNION ALL may have several, and its parts that read the same
    table with the same options become one query. `target` and `columns` are an INSERT's table and
    column list; without a target the output columns are the query's own. `fixed` maps the columns
    of an INSERT's PARTITION (…) clause to the texts of their values.

    Raises `SqlError` for an invalid query and `UnsupportedSqlError` for an unsupported one, both
    with line and column in the script.
    """
    with limited_depth(query):
        return _analyzed(query, resolver, target, columns, fixed)


def _analyzed(
    query: Query,
    resolver: Resolver,
    target: TableInfo | None,
    columns: tuple[str, ...],
    fixed: Mapping[str, str],
) -> list[StreamQuery]:
    parsed = inlined(names.parse_query(query), resolver)
    groups: dict[tuple[object, ...], list[StreamSelect]] = {}
    for select in read_selects(parsed, resolver):
        # What the parts of UNION ALL read: the source, with the options of its hint.
        reads = select.source.name, tuple(sorted(select.options.items()))
        groups.setdefault(reads, []).append(select)
    analysis = _Analysis(parsed, resolver.zone, target, columns, fixed)
    return [_merged(group, analysis, target) for group in groups.values()]


def _merged(
    group: list[StreamSelect], analysis: _Analysis, target: TableInfo | None
) -> StreamQuery:
    """Merge the parts of UNION ALL that read the same table into one query."""
    marks = group[0].source.changelog and unpaired_retractions.are_removals(target)
    if len(group) == 1:
        if marks and target is not None:
            query = analysis.query(group[0], keep_row=True)
            if query.row_kinds:
                return unpaired_retractions.marked(query, target)
        query = analysis.query(group[0])
        keeps = query.row_kinds and versions.keeps_versions(target)
        return versions.kept(query) if keeps else query
    for number, lookup in enumerate(each for part in group for each in part.lookups):
        lookup.join = replace(lookup.join, relation=f"dim_{number}")
    ordered = not any(part.aggregates for part in group)
    queries = [analysis.query(part, keep_row=ordered) for part in group]
    kinds = {(q.row_kinds, *(column.type for column in q.rows.columns)) for q in queries}
    if len(kinds) > 1:
        reason = "parts of UNION ALL over one table with other types, or only some with GROUP BY"
        raise NotStreamedError(reason)
    merged = union_all.merged(queries, ordered, target if marks else None)
    # One part may give a key of the target to other keys of the source than another part does.
    return key_moves.reordered(merged) if key_moves.matter(merged, target) else merged


@dataclass(frozen=True)
class _Analysis:
    """Makes the `StreamQuery` of each SELECT of a continuous query.

    `table` and `listed` are the target and the column list of an INSERT.
    """

    parsed: names.Parsed
    zone: str
    table: TableInfo | None
    listed: tuple[str, ...]
    fixed: Mapping[str, str]

    def query(self, select: StreamSelect, keep_row: bool = False) -> StreamQuery:
        """The query of a SELECT; with `keep_row`, `_row` follows the columns of its rows."""
        script, table, top = self.parsed.script, self.table, select.copy()
        stream, changelog = Stream(script, top, self.zone), top.source.changelog
        mappings = self._mappings(top)
        upsert_source.check(top, table, mappings)
        changing_rows.check_times(stream, table, mappings)
        grouped = group_by_check.check(top, table, mappings)
        if grouped:
            group_by_check.check_scales(stream, mappings)
        upsert = row_number.check(top, table, mappings)
        signed = changelog and (grouped or retraction.can_sign(script, top, table, mappings))
        if signed and grouped and table is not None:
            top.items = retraction.sign_aggregates(top, table, mappings)
        self._order_values(top, mappings)
        types = bound(stream, stream.rows(top.items, top.names, signed=signed))
        items, output = self._output(top, mappings, [kind for _, kind in types])
        if changelog and not grouped and table is not None:
            if signed:
                items = retraction.sign_columns(items, top, table, mappings)
            else:
                changing_rows.check_lookups(stream, table, mappings)
                items = retraction.finite_sums(items, table, mappings)
                items = changing_rows.applied(stream, table, mappings, items)
        merging = Merging(grouped, signed, upsert)
        query = self._query(stream, items, output, merging, keep_row)
        if table is None or not key_moves.matter(query, table):
            return query
        if key_moves.keeps_source_key(top, table, mappings):
            return query
        return key_moves.reordered(query)

    def _mappings(self, top: StreamSelect) -> list[ColumnMapping]:
        """The target's columns; the constants of PARTITION (…) become further projections."""
        script, table = self.parsed.script, self.table
        if table is None:
            return []
        mappings = targets.column_mappings(script, top.select, table, self.listed, len(top.items))
        for place, mapping in enumerate(mappings):
            column = mapping.column
            if column.name in self.fixed:
                mappings[place] = ColumnMapping(column, len(top.items))
                value = targets.constant(script, top.select, self.fixed[column.name], column)
                top.items.append(value)
                top.names.append(f"__partition_{column.name}")
        return mappings

    def _order_values(self, top: StreamSelect, mappings: list[ColumnMapping]) -> None:
        """Make FIRST_VALUE and LAST_VALUE aggregate in the order of `_row`.

        For a column that merges by `last_non_null_value` they skip nulls and retracted rows.
        """
        table, row = self.table, column_of(top.alias, ROW)
        merged = {
            mapping.index: merge_function(table.options, mapping.column.name)
            for mapping in mappings
            if table is not None
        }
        for index, item in enumerate(top.items):
            wrapped = exp.Paren(this=item)
            for node in list(wrapped.find_all(exp.FirstValue, exp.LastValue)):
                kind = exp.First if isinstance(node, exp.FirstValue) else exp.Last
                order = exp.Order(this=node.this, expressions=[exp.Ordered(this=row.copy())])
                ordered_call: exp.Expr = kind(this=order)
                if merged.get(index) == "last_non_null_value":
                    ordered_call = _with_values(top, ordered_call, node)
                node.replace(ordered_call)
            top.items[index] = wrapped.this

    def _output(
        self, top: StreamSelect, mappings: list[ColumnMapping], types: list[str]
    ) -> tuple[list[exp.Expr], tuple[Column, ...]]:
        """The projections cast to the target's column types, and the output columns."""
        if not mappings:
            output = tuple(Column(name, kind) for name, kind in zip(top.names, types, strict=False))
            pairs = zip(top.items, output, strict=True)
            return [targets.cast_to(item, c.type, c.type) for item, c in pairs], output
        items: list[exp.Expr] = []
        for mapping in mappings:
            if mapping.index is None:
                items.append(targets.cast_to(exp.Null(), "STRING", mapping.column.type))
                continue
            item, kind = top.items[mapping.index], types[mapping.index]
            node = item if span(item) else top.select
            items.append(targets.converted(self.parsed.script, node, item, kind, mapping.column))
        return items, tuple(mapping.column for mapping in mappings)

    def _query(
        self,
        stream: Stream,
        items: list[exp.Expr],
        output: tuple[Column, ...],
        merging: Merging,
        keep_row: bool,
    ) -> StreamQuery:
        top, columns = stream.top, [column.name for column in output]
        # A join may reorder rows, but the changes of one key must stay in order.
        changes = top.source.changelog and not merging.signed
        hinted = any(lookup.join.ordered for lookup in top.lookups)
        matters = hinted or changes or targets.needs_order(self.table)
        sort = bool(top.lookups) and not merging.grouped and matters
        tree = stream.rows(items, columns, merging.signed, keep_row or sort)
        rows, misses = generate(tree), stream.misses()
        ordered = rows
        if sort and not keep_row:
            listed = ", ".join(map(quote, [*columns, *([ROW_KIND] if changes else [])]))
            ordered = f"SELECT {listed} FROM ({rows}) AS numbered ORDER BY {quote(ROW)}"
        trees: list[exp.Expr] = [tree] if misses is None else [tree, misses]
        # A source must be read even when none of its columns is needed (SELECT 1 FROM t).
        used = names.used_columns(trees, SOURCE, top.source) or (top.source.columns[0].name,)
        lookups = tuple(
            lookup_join(stream, each, names.used_columns(trees, join.relation, join.table))
            for each in top.lookups
            for join in (each.join,)
        )
        passed = passthrough_columns(top, items, output)
        functions = functions_in(self.parsed.tree)
        return StreamQuery(
            StreamScan(top.source, used, top.source.changelog, top.options),
            lookups,
            OutputRows(ordered, output, rows if sort else None, functions, passed),
            self._fingerprint(top.source, used, lookups, output),
            merging,
            None if misses is None else generate(misses),
        )

    def _fingerprint(
        self,
        source: TableInfo,
        source_columns: tuple[str, ...],
        lookups: tuple[LookupJoin, ...],
        output: tuple[Column, ...],
    ) -> str:
        """SHA-256 of the query's text without its layout, and of the parts of tables that it uses.

        Those parts are the name, the connector, the types of the used columns and the computed
        columns. The output columns, PARTITION values and Python functions are included too.
        """

        def used(table: TableInfo, names: tuple[str, ...]) -> list[object]:
            kinds = [(c.name, c.type) for c in table.columns if c.name in names]
            computed = [(c.name, " ".join(c.expression.split())) for c in table.computed]
            order = [c.name for c in table.declared]
            at_end = order[len(table.columns) :] == [name for name, _ in computed]
            return [table.name, table.connector, kinds, computed, *([] if at_end else [order])]

        parts = [
            self.parsed.canonical,
            used(source, source_columns),
            [used(lookup.table, lookup.columns) for lookup in lookups],
            [(column.name, column.type) for column in output],
            *([sorted(self.fixed.items())] if self.fixed else []),
            *(function.record() for function in functions_in(self.parsed.tree)),
            *([self.zone] if self.zone != UTC else []),
        ]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _with_values(top: StreamSelect, ordered_call: exp.Expr, node: exp.Expr) -> exp.Expr:
    """Filter an ordered aggregate to rows that have a value and are not retractions."""
    condition: exp.Expr = exp.Not(this=exp.Is(this=node.this.copy(), expression=exp.Null()))
    if top.source.changelog:
        condition = exp.and_(condition, exp.Not(this=retraction.retracts(top.alias)))
    parent = node.parent
    if isinstance(parent, exp.Filter):
        where = parent.expression
        where.set("this", exp.and_(where.this, condition))
        return ordered_call
    return exp.Filter(this=ordered_call, expression=exp.Where(this=condition))
