"""Analysis of a continuous query: from its text to `StreamQuery`s that run in DuckDB."""

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from sqlglot import exp

from streamhouse.errors import NotStreamedError
from streamhouse.sql.expressions.binder import generate
from streamhouse.sql.expressions.zones import UTC
from streamhouse.sql.functions.expression_builders import column_of
from streamhouse.sql.nesting_depth import limited_depth
from streamhouse.sql.options.merge_functions import keeps_removals_apart
from streamhouse.sql.plan import Column, Merging, Resolver, StreamQuery, StreamScan, TableInfo
from streamhouse.sql.resolution import columns as names
from streamhouse.sql.resolution import insert_target as targets
from streamhouse.sql.resolution import versions
from streamhouse.sql.resolution.view_expansion import inlined
from streamhouse.sql.streaming import changing_rows, group_by_check, retraction, row_number
from streamhouse.sql.streaming.current_watermark import source_watermarks
from streamhouse.sql.streaming.generated_sql import ROW, bound, rows
from streamhouse.sql.streaming.output_rows import Part, output_rows
from streamhouse.sql.streaming.select_reader import read_selects
from streamhouse.sql.streaming.stream_select import OutputColumn, StreamSelect
from streamhouse.sql.syntax import Query
from streamhouse.sql.text import span
from streamhouse.sql.udf.registry import functions_in

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
        parsed = inlined(names.parse_query(query), resolver)
        groups: dict[tuple[object, ...], list[StreamSelect]] = {}
        for select in read_selects(parsed, resolver):
            # What the parts of UNION ALL read: the source, with the options of its hint.
            reads = select.source.name, tuple(sorted(select.options.items()))
            groups.setdefault(reads, []).append(select)
        analysis = _Analysis(parsed, resolver, target, columns, fixed)
        return [analysis.query(group) for group in groups.values()]


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

    def query(self, selects: list[StreamSelect]) -> StreamQuery:
        """The query of a SELECT, or of the parts of UNION ALL that read the same table."""
        source, target, union = selects[0].source, self.target, len(selects) > 1
        for number, lookup in enumerate(each for part in selects for each in part.lookups):
            lookup.join = replace(lookup.join, relation=f"dim_{number}")
        removes = target is not None and keeps_removals_apart(target.options) and source.changelog
        combined = removes or (union and not any(select.aggregates for select in selects))
        parts = [self._part(select, combined) for select in selects]
        if len({(part.row_kinds, *(c.type for c in part.columns)) for part in parts}) > 1:
            raise NotStreamedError(
                "parts of UNION ALL over one table with other types, or only some with GROUP BY"
            )
        lookups = tuple(lookup for part in parts for lookup in part.lookups)
        misses = [generate(part.misses) for part in parts if part.misses is not None]
        grouped = any(part.merging.grouped for part in parts)
        upserts = dict.fromkeys(part.merging.upsert for part in parts if part.merging.upsert)
        reorder_key = changing_rows.reorder_key([part.top for part in parts if part.row_kinds])
        read = {name for part in parts for name in part.source_columns}
        read |= {*reorder_key, *(source.primary_key if removes else ())}
        listed = [column.name for column in source.columns if column.name in read]
        # The hidden key of a view is none of its columns.
        listed += [name for name in reorder_key if name not in listed]
        watermarks = max(part.watermarks for part in parts)
        if union:
            misses = [f"({sql})" for sql in misses]
            # A shuffle sends a row to one task, but each part may look up another key.
            lookups = tuple(replace(lookup, row_keys_sql=None) for lookup in lookups)
        return StreamQuery(
            StreamScan(source, tuple(listed), source.changelog, selects[0].options, watermarks),
            lookups,
            output_rows(parts, functions_in(self.parsed.tree)),
            self._fingerprint(parts, reorder_key),
            Merging(grouped, parts[0].merging.signed, "; ".join(upserts)),
            " UNION ".join(misses) or None,
            reorder_key,
        )

    def _part(self, select: StreamSelect, combined: bool) -> Part:
        target = self.target
        top = replace(select, target=target, outputs=self._outputs(select))
        changelog = top.source.changelog
        if not versions.keeps_versions(target):
            changing_rows.check_upserts(top)
        changing_rows.check_times(top)
        grouped = group_by_check.check(top)
        if grouped:
            group_by_check.check_scales(top)
        upsert = row_number.check(top)
        signed = changelog and (grouped or retraction.can_sign(top))
        if grouped:
            outputs = retraction.sign_aggregates(top) if signed else top.outputs
            top.outputs = tuple(_in_order(each, top) for each in outputs)
        items, output = self._cast(top, signed)
        if changelog and not grouped and target is not None:
            if signed:
                items = retraction.sign_columns(items, top)
            else:
                changing_rows.check_lookups(top, target)
                items = retraction.finite_sums(items, top, target)
                items = changing_rows.applied(items, top, target)
        merging = Merging(grouped, signed, upsert)
        watermarks, timed = source_watermarks(top, self.resolver)
        return Part(top, items, output, merging, combined, watermarks, timed)

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

    def _cast(self, top: StreamSelect, signed: bool) -> tuple[list[exp.Expr], tuple[Column, ...]]:
        """The projections cast to the types of the output columns, and these columns."""
        given = [item for _, item in top.given]
        kinds = dict(bound(top, rows(top, given, [each.name for each, _ in top.given], signed)))
        items, output = [], []
        for each in top.outputs:
            column, item = each.column, each.item
            if top.target is None and item is not None:
                column = Column(each.name, kinds[each.name])
                items.append(targets.cast_to(item, column.type, column.type))
            else:
                node = item if item is not None and span(item) else top.select
                kind = kinds.get(each.name, "")
                items.append(targets.converted(top.script, node, item, kind, column))
            output.append(column)
        return items, tuple(output)

    def _fingerprint(self, parts: list[Part], reorder_key: tuple[str, ...]) -> str:
        """SHA-256 of the query's text without its layout, and of the parts of tables that it uses.

        Those parts are the name, the connector, the types of the used columns and the computed
        columns. The output columns, PARTITION values and Python functions are included too.
        """

        def used(table: TableInfo, names: Collection[str]) -> list[object]:
            kinds = [(c.name, c.type) for c in table.columns if c.name in names]
            computed = [(c.name, " ".join(c.expression.split())) for c in table.computed]
            order = [c.name for c in table.declared]
            at_end = order[len(table.columns) :] == [name for name, _ in computed]
            return [table.name, table.connector, kinds, computed, *([] if at_end else [order])]

        prints = []
        for part in parts:
            values = [
                self.parsed.canonical,
                used(part.top.source, part.source_columns),
                [used(lookup.table, lookup.columns) for lookup in part.lookups],
                [(column.name, column.type) for column in part.columns],
                *([sorted(self.fixed.items())] if self.fixed else []),
                *(function.record() for function in functions_in(self.parsed.tree)),
                *([self.resolver.zone] if self.resolver.zone != UTC else []),
                *([part.watermarks] if part.watermarks else []),
            ]
            found = _hash(json.dumps(values))
            moves = reorder_key and not changing_rows.keeps_source_key(part.top)
            prints.append(_hash(f"{found} reordered") if moves else found)
        if len(prints) == 1:
            return prints[0]
        union = _hash("".join(prints))
        return _hash(f"{union} reordered") if reorder_key else union


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


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
