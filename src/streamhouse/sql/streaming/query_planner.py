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
from streamhouse.sql.resolution.view_expansion import inlined
from streamhouse.sql.streaming import (
    changing_rows,
    group_by_check,
    key_moves,
    retraction,
    row_number,
    union_all,
    unpaired_retractions,
)
from streamhouse.sql.streaming.current_watermark import source_watermarks
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
from streamhouse.sql.streaming.stream_select import OutputColumn, StreamSelect
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
    analysis = _Analysis(parsed, resolver, target, columns, fixed)
    return [_merged(group, analysis) for group in groups.values()]


def _merged(group: list[StreamSelect], analysis: _Analysis) -> StreamQuery:
    """Merge the parts of UNION ALL that read the same table into one query."""
    target = analysis.target
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

    `target` and `listed` are the table and the column list of an INSERT.
    """

    parsed: names.Parsed
    resolver: Resolver
    target: TableInfo | None
    listed: tuple[str, ...]
    fixed: Mapping[str, str]

    def query(self, select: StreamSelect, keep_row: bool = False) -> StreamQuery:
        """The query of a SELECT; with `keep_row`, `_row` follows the columns of its rows."""
        script, target = self.parsed.script, self.target
        top = replace(select, target=target, outputs=self._outputs(select))
        stream, changelog = Stream(script, top, self.resolver.zone), top.source.changelog
        if not versions.keeps_versions(target):
            changing_rows.check_upserts(top)
        changing_rows.check_times(top)
        grouped = group_by_check.check(top)
        if grouped:
            group_by_check.check_scales(stream)
        upsert = row_number.check(top)
        signed = changelog and (grouped or retraction.can_sign(script, top))
        if grouped:
            outputs = retraction.sign_aggregates(top) if signed else top.outputs
            top.outputs = tuple(_in_order(each, top) for each in outputs)
        items, output = self._cast(stream, signed)
        if changelog and not grouped and target is not None:
            if signed:
                items = retraction.sign_columns(items, top)
            else:
                changing_rows.check_lookups(script, top, target)
                items = retraction.finite_sums(items, top, target)
                items = changing_rows.applied(items, top, target)
        merging = Merging(grouped, signed, upsert)
        query = self._query(stream, items, output, merging, keep_row)
        if not key_moves.matter(query, target) or key_moves.keeps_source_key(top):
            return query
        return key_moves.reordered(query)

    def _outputs(self, select: StreamSelect) -> tuple[OutputColumn, ...]:
        """The columns that a SELECT writes; a constant of PARTITION (…) is a projection, too."""
        script, target, items = self.parsed.script, self.target, list(select.items)
        if target is None:
            pairs = zip(select.names, items, strict=True)
            return tuple(OutputColumn(Column(name, ""), item) for name, item in pairs)
        outputs = []
        mapped = targets.column_mappings(script, select.select, target, self.listed, len(items))
        for column, index in mapped:
            item = None if index is None else items[index]
            if column.name in self.fixed:
                text = self.fixed[column.name]
                item = targets.constant(script, select.select, text, column)
            outputs.append(OutputColumn.of(column, item, target))
        return tuple(outputs)

    def _cast(self, stream: Stream, signed: bool) -> tuple[list[exp.Expr], tuple[Column, ...]]:
        """The projections cast to the types of the output columns, and these columns."""
        top, script = stream.top, self.parsed.script
        given = [item for _, item in top.given]
        rows = stream.rows(given, [each.name for each, _ in top.given], signed=signed)
        kinds = dict(bound(stream, rows))
        items, output = [], []
        for each in top.outputs:
            column, item = each.column, each.item
            if top.target is None and item is not None:
                column = Column(each.name, kinds[each.name])
                items.append(targets.cast_to(item, column.type, column.type))
            elif item is None:
                items.append(targets.cast_to(exp.Null(), "STRING", column.type))
            else:
                node = item if span(item) else top.select
                items.append(targets.converted(script, node, item, kinds[each.name], column))
            output.append(column)
        return items, tuple(output)

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
        matters = hinted or changes or targets.needs_order(self.target)
        sort = bool(top.lookups) and not merging.grouped and matters
        tree = stream.rows(items, columns, merging.signed, keep_row or sort)
        rows, misses = generate(tree), stream.misses()
        ordered = rows
        if sort and not keep_row:
            listed = ", ".join(map(quote, [*columns, *([ROW_KIND] if changes else [])]))
            ordered = f"SELECT {listed} FROM ({rows}) AS numbered ORDER BY {quote(ROW)}"
        trees: list[exp.Expr] = [tree] if misses is None else [tree, misses]
        # A source must be read even when none of its columns is needed (SELECT 1 FROM t).
        watermarks, timed = source_watermarks(stream, self.resolver)
        used = names.used_columns([*trees, *timed], SOURCE, top.source)
        used = used or (top.source.columns[0].name,)
        lookups = tuple(
            lookup_join(stream, each, names.used_columns(trees, join.relation, join.table))
            for each in top.lookups
            for join in (each.join,)
        )
        passed = passthrough_columns(top, items, output)
        functions = functions_in(self.parsed.tree)
        return StreamQuery(
            StreamScan(top.source, used, top.source.changelog, top.options, watermarks),
            lookups,
            OutputRows(ordered, output, rows if sort else None, functions, passed),
            self._fingerprint(top.source, used, lookups, output, watermarks),
            merging,
            None if misses is None else generate(misses),
        )

    def _fingerprint(
        self,
        source: TableInfo,
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
            used(source, source_columns),
            [used(lookup.table, lookup.columns) for lookup in lookups],
            [(column.name, column.type) for column in output],
            *([sorted(self.fixed.items())] if self.fixed else []),
            *(function.record() for function in functions_in(self.parsed.tree)),
            *([self.resolver.zone] if self.resolver.zone != UTC else []),
            *([watermarks] if watermarks else []),
        ]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _in_order(output: OutputColumn, top: StreamSelect) -> OutputColumn:
    """A column whose FIRST_VALUE and LAST_VALUE aggregate in the order of `_row`.

    For a column that merges by `last_non_null_value` they skip nulls and retracted rows.
    """
    if output.item is None:
        return output
    wrapped = exp.Paren(this=output.item.copy())
    for node in list(wrapped.find_all(exp.FirstValue, exp.LastValue)):
        kind = exp.First if isinstance(node, exp.FirstValue) else exp.Last
        row = exp.Ordered(this=column_of(top.alias, ROW))
        ordered_call: exp.Expr = kind(this=exp.Order(this=node.this, expressions=[row]))
        if output.function == "last_non_null_value":
            ordered_call = _with_values(top, ordered_call, node)
        node.replace(ordered_call)
    return replace(output, item=wrapped.this)


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
