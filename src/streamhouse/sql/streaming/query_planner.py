"""Analysis of a continuous query: from its text to `StreamQuery`s that run in DuckDB."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from sqlglot import exp

from streamhouse.sql import node_errors
from streamhouse.sql.expressions.binder import generate
from streamhouse.sql.expressions.zones import UTC
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
    sum_scale_check,
    union_all,
    unpaired_retractions,
    upsert_source,
)
from streamhouse.sql.streaming.current_watermark import source_watermarks
from streamhouse.sql.streaming.generated_sql import ROW, Stream, bound, lookup_join
from streamhouse.sql.streaming.passthrough_columns import passthrough_columns
from streamhouse.sql.streaming.query_blocks import QueryBlockReader, SelectBlock
from streamhouse.sql.syntax import Query
from streamhouse.sql.text import span
from streamhouse.sql.udf.call import functions_in
from streamhouse.sql.udf.function import PythonFunction

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
    parts = QueryBlockReader(parsed.script, resolver).parts(parsed.tree)
    groups: dict[tuple[object, ...], list[_Analysis]] = {}
    for part in parts:
        analysis = _Analysis(parsed, part, resolver, fixed=fixed)
        groups.setdefault(analysis.reads, []).append(analysis)
    return [_merged(group, resolver, target, columns) for group in groups.values()]


def _merged(
    group: list[_Analysis],
    resolver: Resolver,
    target: TableInfo | None,
    insert_columns: tuple[str, ...],
) -> StreamQuery:
    """Merge the parts of UNION ALL that read the same table into one query."""
    marks = unpaired_retractions.are_removals(target) and group[0].stream.changelog
    if len(group) == 1:
        analysis = group[0]
        if marks and target is not None:
            query = analysis.run(target, insert_columns, keep_row=True)
            if query.row_kinds:
                return unpaired_retractions.marked(query, target)
            analysis = _Analysis(analysis.parsed, analysis.tree, resolver, fixed=analysis.fixed)
        query = analysis.run(target, insert_columns)
        return versions.kept(query) if _keeps_versions(query, target) else query
    for number, lookup in enumerate(each for part in group for each in part.stream.lookups):
        lookup.relation = f"dim_{number}"
    ordered = not any(part.aggregates for part in group)
    queries = [part.run(target, insert_columns, keep_row=ordered) for part in group]
    first, top = queries[0], group[-1].top
    for other in queries[1:]:
        kinds = [column.type for column in other.rows.columns]
        if other.row_kinds != first.row_kinds or kinds != [c.type for c in first.rows.columns]:
            reason = (
                "parts of UNION ALL over one table with other types, or only some with GROUP BY"
            )
            raise node_errors.not_streamed(group[-1].parsed.script, top.select, reason)
    merged = union_all.merged(queries, ordered, target if marks else None)
    # One part may give a key of the target to other keys of the source than another part does.
    return key_moves.reordered(merged) if key_moves.matter(merged, target) else merged


def _keeps_versions(query: StreamQuery, target: TableInfo | None) -> bool:
    return query.row_kinds and versions.keeps_versions(target)


class _Analysis:
    """Analyzes one SELECT of a continuous query; `run` makes its `StreamQuery`."""

    def __init__(
        self,
        parsed: names.Parsed,
        tree: exp.Expr,
        resolver: Resolver,
        fixed: Mapping[str, str] = _NO_VALUES,
    ) -> None:
        self.parsed = parsed
        self.tree = tree.copy()
        self.fixed = fixed
        reader = QueryBlockReader(parsed.script, resolver)
        top = reader.read(tree)
        self._resolver = resolver
        assert reader.source is not None
        self.source_options = reader.source_options
        changelog = reader.source.changelog
        self.stream = Stream(self.parsed.script, top, reader.source, changelog, resolver.zone)

    @property
    def top(self) -> SelectBlock:
        return self.stream.top

    @property
    def reads(self) -> tuple[object, ...]:
        """The source table's name and the options of its hint, to group the parts of UNION ALL."""
        return (self.stream.source.name, tuple(sorted(self.source_options.items())))

    @property
    def aggregates(self) -> bool:
        """Whether the query has a GROUP BY or an aggregate function."""
        return bool(self.top.group) or any(item.find(exp.AggFunc) for item in self.top.items)

    def run(
        self, table: TableInfo | None, insert_columns: tuple[str, ...], keep_row: bool = False
    ) -> StreamQuery:
        script, top, stream = self.parsed.script, self.top, self.stream
        mappings = self._mappings(table, insert_columns)
        if not versions.keeps_versions(table):
            upsert_source.check(script, top, stream.source, table, mappings, self.aggregates)
        changing_rows.check_times(stream, table, mappings)
        grouped = group_by_check.check(script, top, table, mappings)
        if grouped:
            sum_scale_check.check(stream, mappings)
        upsert = row_number.check(script, top, stream.source, stream.changelog, table, mappings)
        signed = stream.changelog and (grouped or retraction.can_sign(script, top, table, mappings))
        if signed and grouped and table is not None:
            top.items = retraction.sign_aggregates(script, top, table, mappings)
        ordered = any(item.find(exp.FirstValue, exp.LastValue) for item in top.items)
        if ordered:
            self._order_values(table, mappings)
        types = bound(stream, stream.rows(top.items, top.names, ordered, signed=signed))
        items, output = self._output(mappings, [kind for _, kind in types])
        if signed and not grouped and table is not None:
            items = retraction.sign_columns(items, top, table, mappings)
        elif stream.changelog and not grouped and table is not None:
            changing_rows.check_lookups(stream, table, mappings)
            items = retraction.finite_sums(items, table, mappings)
            items = changing_rows.applied(stream, table, mappings, items)
        # A join may reorder rows, but the changes of one key must stay in order.
        sort = bool(stream.lookups) and not grouped
        hinted_order = any(lookup.ordered for lookup in stream.lookups)
        sort = sort and (
            hinted_order or (stream.changelog and not signed) or targets.needs_order(table)
        )
        output_names = [column.name for column in output]
        rows = stream.rows(
            items, output_names, carry_row=ordered, ordered=sort, signed=signed, keep_row=keep_row
        )
        misses = stream.misses()
        query = self._query(rows, misses, output, Merging(grouped, signed, upsert))
        passed = passthrough_columns(rows, output, stream.source)
        query = replace(query, rows=replace(query.rows, passed=passed))
        if sort:
            row = exp.column(exp.to_identifier(ROW, quoted=True), self._top_alias())
            numbered = stream.rows(
                [*items, row], [*output_names, ROW], carry_row=True, signed=signed
            )
            output_rows = replace(query.rows, numbered_sql=generate(numbered))
            query = replace(query, rows=output_rows)
        if table is None or not key_moves.matter(query, table):
            return query
        if key_moves.keeps_source_key(top, stream.source, table, mappings):
            return query
        return key_moves.reordered(query)

    def _top_alias(self) -> exp.Identifier:
        return exp.to_identifier(self.top.alias, quoted=True)

    def _mappings(
        self, table: TableInfo | None, insert_columns: tuple[str, ...]
    ) -> list[ColumnMapping]:
        if table is None:
            return []
        count = len(self.top.items)
        mappings = targets.column_mappings(
            self.parsed.script, self.top.select, table, insert_columns, count
        )
        return [
            self._fixed(mapping) if mapping.column.name in self.fixed else mapping
            for mapping in mappings
        ]

    def _fixed(self, mapping: ColumnMapping) -> ColumnMapping:
        """Add the constant that PARTITION (…) gives for a column as one more projection."""
        script, top, column = self.parsed.script, self.top, mapping.column
        top.items.append(targets.constant(script, top.select, self.fixed[column.name], column))
        top.names.append(f"__partition_{column.name}")
        return ColumnMapping(column, len(top.items) - 1)

    def _order_values(self, table: TableInfo | None, mappings: list[ColumnMapping]) -> None:
        """Make FIRST_VALUE and LAST_VALUE aggregate in the order of `_row`.

        For a column that merges by `last_non_null_value` they skip nulls and retracted rows.
        """
        alias = self._top_alias()
        row = exp.column(exp.to_identifier("_row", quoted=True), alias)
        merged = {
            mapping.index: merge_function(table.options, mapping.column.name)
            for mapping in mappings
            if table is not None
        }
        for index, item in enumerate(self.top.items):
            wrapped = exp.Paren(this=item)
            for node in list(wrapped.find_all(exp.FirstValue, exp.LastValue)):
                kind = exp.First if isinstance(node, exp.FirstValue) else exp.Last
                order = exp.Order(this=node.this, expressions=[exp.Ordered(this=row.copy())])
                ordered_call: exp.Expr = kind(this=order)
                if merged.get(index) == "last_non_null_value":
                    ordered_call = self._with_values(ordered_call, node)
                node.replace(ordered_call)
            self.top.items[index] = wrapped.this

    def _with_values(self, ordered_call: exp.Expr, node: exp.Expr) -> exp.Expr:
        """Filter an ordered aggregate to rows that have a value and are not retractions."""
        condition: exp.Expr = exp.Not(this=exp.Is(this=node.this.copy(), expression=exp.Null()))
        if self.stream.changelog:
            condition = exp.and_(condition, exp.Not(this=retraction.retracts(self.top.alias)))
        parent = node.parent
        if isinstance(parent, exp.Filter):
            where = parent.expression
            where.set("this", exp.and_(where.this, condition))
            return ordered_call
        return exp.Filter(this=ordered_call, expression=exp.Where(this=condition))

    def _output(
        self, mappings: list[ColumnMapping], types: list[str]
    ) -> tuple[list[exp.Expr], tuple[Column, ...]]:
        """The projections cast to the target's column types, and the output columns."""
        top = self.top
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
        rows: exp.Expr,
        misses: exp.Expr | None,
        output: tuple[Column, ...],
        merging: Merging,
    ) -> StreamQuery:
        stream = self.stream
        trees = [rows] if misses is None else [rows, misses]
        watermarks, timed = source_watermarks(stream, self._resolver)
        source_columns = names.used_columns([*trees, *timed], "src", stream.source)
        # A source must be read even when none of its columns is needed (SELECT 1 FROM t).
        source_columns = source_columns or (stream.source.columns[0].name,)
        lookups = tuple(
            lookup_join(stream, lookup, names.used_columns(trees, lookup.relation, lookup.table))
            for lookup in stream.lookups
        )
        source, options = stream.source, self.source_options
        scan = StreamScan(source, source_columns, stream.changelog, options, watermarks)
        return StreamQuery(
            scan,
            lookups,
            OutputRows(generate(rows), output, functions=self._functions),
            self._fingerprint(source_columns, lookups, output, watermarks),
            merging,
            None if misses is None else generate(misses),
        )

    @property
    def _functions(self) -> tuple[PythonFunction, ...]:
        return functions_in(self.parsed.tree)

    def _fingerprint(
        self,
        source_columns: tuple[str, ...],
        lookups: tuple[LookupJoin, ...],
        output: tuple[Column, ...],
        watermarks: str,
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
            used(self.stream.source, source_columns),
            [used(lookup.table, lookup.columns) for lookup in lookups],
            [(column.name, column.type) for column in output],
            *([sorted(self.fixed.items())] if self.fixed else []),
            *(function.record() for function in self._functions),
            *([self.stream.zone] if self.stream.zone != UTC else []),
            *([watermarks] if watermarks else []),
        ]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()
