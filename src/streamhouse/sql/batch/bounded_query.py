"""Analysis of a bounded query: any SELECT or VALUES over tables as of one point in time each."""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from duckdb.sqltypes import DuckDBPyType
from sqlglot import exp
from sqlglot.errors import OptimizeError
from sqlglot.optimizer.pushdown_projections import pushdown_projections
from sqlglot.optimizer.qualify import qualify
from sqlglot.schema import MappingSchema

from streamhouse.close_matches import nearest
from streamhouse.sql.batch import (
    joins_in_time,
    literal_insert,
    plain_form,
    row_comparisons,
    total_order,
    window_slices,
)
from streamhouse.sql.expressions import aggregates, lowering, timestamp_digits, zones
from streamhouse.sql.expressions.binder import BindError, Relations, describe, generate, refusal
from streamhouse.sql.functions.expression_builders import column_of, quoted
from streamhouse.sql.functions.row_patterns import FUNCTION
from streamhouse.sql.literal_rows import LiteralRows
from streamhouse.sql.nesting_depth import limited_depth
from streamhouse.sql.parser import hints
from streamhouse.sql.parser.dialect import Flink
from streamhouse.sql.plan import ROWS, BoundedQuery, BoundedScan, Resolver, TableInfo
from streamhouse.sql.resolution import as_of_clause
from streamhouse.sql.resolution import columns as names
from streamhouse.sql.resolution import insert_target as targets
from streamhouse.sql.resolution.columns import Parsed, physical
from streamhouse.sql.resolution.view_expansion import views_expanded
from streamhouse.sql.resolution.visible_columns import (
    check_columns,
    check_stored_times,
    check_width,
    leftmost,
)  # fmt: skip
from streamhouse.sql.select_parts import branches, derived
from streamhouse.sql.syntax import Query
from streamhouse.sql.text import Script
from streamhouse.sql.types import column_type
from streamhouse.sql.udf.registry import functions_in


@dataclass
class _Scans:
    """The tables of a query by their relations, `scan_0`, `scan_1`, … in this order."""

    tables: dict[str, BoundedScan] = field(default_factory=dict)
    rows: LiteralRows | None = None

    @property
    def relations(self) -> dict[str, dict[str, str]]:
        relations = {name: physical(scan.table) for name, scan in self.tables.items()}
        return relations if self.rows is None else relations | {ROWS: self.rows.types}

    @property
    def keys(self) -> dict[str, tuple[str, ...]]:
        """The primary keys of their tables."""
        return {name: scan.table.primary_key for name, scan in self.tables.items()}

    def plan(self, tree: exp.Expr) -> tuple[BoundedScan, ...]:
        """The scans, with the columns that a tree reads: at least one."""
        scans, read = [], names.columns_read([tree])
        for name, scan in self.tables.items():
            used = names.used_columns(read, name, scan.table)
            columns = used or (scan.table.columns[0].name,)
            scans.append(dataclasses.replace(scan, columns=columns))
        return tuple(scans)


@dataclass
class Analyzed:
    """A query translated to DuckDB's terms, and the names and Flink types of its columns.

    `zone` is the time zone in which it was planned, `state_ttl_ms` the time of its STATE_TTL hints.
    """

    parsed: Parsed
    tree: exp.Query
    scans: _Scans
    output: list[str]
    types: list[str]
    zone: str = zones.UTC
    state_ttl_ms: int = 0

    def named(self, given: Sequence[str], what: str) -> list[str]:
        """The names of its columns, or those that a statement gives them, for `what` it makes.

        Raises `SqlError` for another number of names, and for those that the engine uses itself.
        """
        script, node = self.parsed.script, self.parsed.tree
        if given and len(given) != len(self.output):
            message = (
                f"{what} names {len(given)} column(s), but its query returns "
                f"{len(self.output)}: {', '.join(self.output)}"
            )
            raise script.error_at(node, message)
        output = list(given) or self.output
        names.reserved(script, output, node)
        return output

    def plan(
        self, tree: exp.Query | None = None, output: Sequence[str] | None = None
    ) -> BoundedQuery:
        """The plan of this query, or of a `tree` around it; `output` are the names of its columns.

        Raises `SqlError` if DuckDB cannot bind the tree.
        """
        output = self.output if output is None else output
        if tree is None:
            tree = self.tree
        else:
            zones.in_zone(tree, self.zone)
            bound(self.parsed.script, self.parsed.tree, tree, self.scans.relations)
        scans = self.scans.plan(tree)
        called = functions_in(tree)
        sql = generate(window_slices.without_ends(joins_in_time.in_duckdb(tree)))
        return BoundedQuery(
            scans, sql, tuple(output), self.scans.rows, called, state_ttl_ms=self.state_ttl_ms
        )


def analyze_bounded(
    query: Query,
    resolver: Resolver,
    target: TableInfo | None = None,
    columns: tuple[str, ...] = (),
) -> BoundedQuery:
    """Compile a SELECT or VALUES to DuckDB SQL over `scan_0`, `scan_1`, …, one per table reference.

    With a `target` (and an INSERT's column list) the output is the target's columns in order.
    Raises `SqlError` and `UnsupportedSqlError` with line and column. The SQL takes the time of the
    query from `getvariable('now')`, or from the clock if that is not set. The DuckDB session must
    have the time zone UTC, whatever the zone of the resolver's session is.
    """
    with limited_depth(query):
        analyzed = None if query.rows is None else _analyze_rows(query, resolver)
        if analyzed is None:
            parsed = names.parse_query(query)
            analyzed = analyze_tree(parsed, query_tree(parsed), resolver)
            total_order.complete(analyzed.tree, keys=analyzed.scans.keys)
        if target is None:
            _name_fields(analyzed)
            return analyzed.plan()
        return planned_into(analyzed, target, columns)[1]


def analyze_select(query: Query, resolver: Resolver, refusal: str) -> Analyzed:
    """Analyze the query of a statement that needs a SELECT; for VALUES `refusal` is the error."""
    parsed = names.parse_query(query)
    if not isinstance(parsed.tree, exp.Query):
        raise parsed.script.unsupported(parsed.tree, refusal)
    with limited_depth(query):
        return analyze_tree(parsed, parsed.tree.copy(), resolver)


def query_tree(parsed: Parsed) -> exp.Query:
    """The tree of a query, that of VALUES as a SELECT; `UnsupportedSqlError` for anything else."""
    tree, plain = parsed.tree, parsed.tree.unnest()
    tree = row_comparisons.of_values(plain) if isinstance(plain, exp.Values) else tree
    if not isinstance(tree, exp.Query):
        raise parsed.script.unsupported(tree, "a query must be SELECT, WITH or VALUES")
    return tree


def planned_into(
    analyzed: Analyzed, target: TableInfo, columns: tuple[str, ...] = ()
) -> tuple[exp.Query, BoundedQuery]:
    """The tree and the plan of an analyzed query with the target's columns as output."""
    final = _into_target(analyzed, target, columns)
    output = [column.name for column in target.columns]
    keys = tuple(at for at, name in enumerate(output) if name in (target.primary_key or output[:3]))
    return final, dataclasses.replace(analyzed.plan(final, output), keys=keys)


def _name_fields(analyzed: Analyzed) -> None:
    """Name the fields of ROW(…), which have no names in DuckDB, as in a table: `EXPR$0`, …."""
    for select in branches(analyzed.tree):
        for item, name, kind in zip(select.selects, analyzed.output, analyzed.types, strict=True):
            if "EXPR$" in kind:
                value = targets.cast_to(item.unalias().copy(), kind, kind)
                item.replace(exp.alias_(value, quoted(name)))


def _analyze_rows(query: Query, resolver: Resolver) -> Analyzed | None:
    """Analyze a long VALUES list by one cell of each form; None if every row must be analyzed."""
    assert query.rows is not None
    parsed = literal_insert.parse_rows(query)
    assert isinstance(parsed.tree, exp.Values)
    analyzed = analyze_tree(parsed, row_comparisons.of_values(parsed.tree), resolver)
    if not literal_insert.replace_values(analyzed.tree, query.rows):
        return None
    analyzed.scans.rows = query.rows
    return analyzed


def analyze_tree(
    parsed: Parsed, tree: exp.Query, resolver: Resolver, first: TableInfo | None = None
) -> Analyzed:
    """Analyze a query's tree; `first`, if given, describes the first table in the text."""
    tree = views_expanded(parsed, tree, resolver)
    _check_clauses(parsed, tree)
    state_ttl_ms = _drop_query_hints(parsed, tree)
    scans, zone = _Scans(), resolver.zone
    for index, table in enumerate(names.leaves(tree)):
        _scan(parsed, resolver, scans, tree, table, first if index == 0 else None)
    try:
        named = qualified(parsed, tree, scans.relations)
        check_stored_times(parsed.script, named)
        joins_in_time.rewrite(parsed.script, named, scans.relations)
        row_comparisons.rows_in_correlated_queries(named)
        declared = {
            name: timestamp_digits.of_table(scan.table) for name, scan in scans.tables.items()
        }
        lowered = lowering.lower(parsed.script, named, scans.relations, True, declared, zone)
        aggregates.compensate(lowered)
        _write_conditions(parsed, lowered)
        final = pushdown_projections(lowered)
        window_slices.aggregate_slices(final, scans.relations)
    except OptimizeError as error:
        raise parsed.script.error_at(tree, _resolution_error(error)) from None
    assert isinstance(final, exp.Query)
    output = _name_outputs(final)
    types = [kind for _, kind in bound(parsed.script, parsed.tree, final, scans.relations)]
    return Analyzed(parsed, final, scans, output, types, zone, state_ttl_ms)


def _write_conditions(parsed: Parsed, tree: exp.Expr) -> None:
    """Let the function of MATCH_RECOGNIZE get the SQL of its conditions, not their results."""
    for node in list(tree.find_all(exp.Anonymous)):
        if node.name == FUNCTION:
            for condition in node.expressions[2:]:
                sql = generate(condition.unnest())
                if functions_in(condition) or "getvariable" in sql.lower():
                    message = (
                        "a condition of DEFINE that depends on the rows matched before has no "
                        "Python function and no current time; compute these in a subquery"
                    )
                    raise parsed.script.unsupported(condition, message)
                condition.replace(exp.Literal.string(sql))


_SELECT_ARGS = (
    "expressions from_ joins where group having qualify order limit offset with_ distinct windows "
    "hint laterals"
).split()
_TABLE_ARGS = "this db catalog alias version joins laterals".split()
_CLAUSES = {
    "locks": "FOR UPDATE",
    "sample": "TABLESAMPLE",
    "pivots": "PIVOT",
    "into": "INTO",
    "match": "MATCH_RECOGNIZE",
}


def _check_clauses(parsed: Parsed, tree: exp.Expr) -> None:
    """Raise `UnsupportedSqlError` for a clause that Flink does not have or that differs here."""
    for union in tree.find_all(exp.SetOperation):
        if union.args.get("by_name"):
            message = "BY NAME is not supported; name the columns in the order of the first query"
            raise parsed.script.unsupported(union, message)
    for node in tree.find_all(exp.Select, exp.Table, exp.Subquery):
        allowed = _SELECT_ARGS if isinstance(node, exp.Select) else _TABLE_ARGS + _SELECT_ARGS
        extra = names.first_set(node.args, allowed)
        if extra:
            word = _CLAUSES.get(extra, extra.strip("_").upper().replace("_", " "))
            raise parsed.script.unsupported(node, f"{word} is not supported; leave it out")


def _drop_query_hints(parsed: Parsed, tree: exp.Expr) -> int:
    """Check hints and remove them: a bounded query does not retry missed lookups.

    Returns the time of STATE_TTL hints (ms).
    """
    state_ttl_ms = 0
    for select in tree.find_all(exp.Select):
        hint = select.args.get("hint")
        if hint is None:
            continue
        table_names = {table.alias_or_name for table in select.find_all(exp.Table)}
        table_names |= {table.name for table in select.find_all(exp.Table)}
        body, start = hint.expressions[0].name, hint.meta["start"] + 3
        state_ttl_ms = max(state_ttl_ms, hints.state_ttl_ms(parsed.script, body, start))
        for lookup_hint in hints.lookup_hints(parsed.script, body, start):
            if lookup_hint.table not in table_names:
                message = f"hint LOOKUP: there is no table '{lookup_hint.table}'; "
                message += nearest(lookup_hint.table, table_names)
                raise parsed.script.error(message, lookup_hint.start, lookup_hint.end)
        select.set("hint", None)
    for subquery in tree.find_all(exp.Subquery):
        if subquery.meta.get("hints"):
            hinted = subquery.meta["hints"][0]
            raise parsed.script.error_at(hinted, "write a hint after a table, not after a subquery")
    return state_ttl_ms


def _scan(
    parsed: Parsed,
    resolver: Resolver,
    scans: _Scans,
    tree: exp.Expr,
    table: exp.Table,
    override: TableInfo | None = None,
) -> None:
    """Replace a table by its relation `scan_n`, with computed columns in a subquery over it."""
    options, as_of = as_of_clause.as_of(parsed, tree, table, resolver)
    info = override or names.resolve_table(parsed.script, table, resolver, as_of)
    name = f"scan_{len(scans.tables)}"
    scans.tables[name] = BoundedScan(info, name, (), options, as_of)
    alias = table.args.get("alias") or exp.TableAlias(this=table.this.copy())
    new: exp.Expr = exp.Table(this=quoted(name))
    if info.computed or alias.columns:
        inner = table.name
        visible = names.visible_columns(info, inner)
        check_width(parsed.script, table, len(visible), "table has")
        listed = [column.name for column in alias.columns] or visible
        items = [
            exp.alias_(expression, quoted(shown))
            for expression, shown in zip(visible.values(), listed, strict=True)
        ]
        new.set("alias", exp.TableAlias(this=quoted(inner)))
        select = exp.Select(expressions=items, from_=exp.From(this=new))
        new = exp.Subquery(this=select)
    new.set("alias", exp.TableAlias(this=alias.this.copy()))
    for key in ("joins", "laterals", "pivots", "sample"):
        if table.args.get(key):
            new.set(key, table.args[key])
    table.replace(new)


def qualified(parsed: Parsed, tree: exp.Query, relations: Relations) -> exp.Query:
    """Expand stars and qualify every column with its table; `SqlError` for an unknown column."""
    for select in list(tree.find_all(exp.Select)):
        names.name_expressions(select)
    plain_form.name_derived_tables(tree)
    plain_form.name_elements(tree)
    schema = MappingSchema({**relations}, dialect="duckdb", normalize=False)
    try:
        plain_form.rewrite(parsed.script, tree, relations)
        check_columns(parsed.script, tree, relations)
        done = qualify(
            tree,
            dialect=Flink(),
            schema=schema,
            validate_qualify_columns=False,
            identify=True,
        )
    except OptimizeError as error:
        raise parsed.script.error_at(tree, _resolution_error(error)) from None
    assert isinstance(done, exp.Query)
    plain_form.tell_aliases_apart(done)
    return done


_RESOLUTION_ERRORS = (
    ("Alias already used: ", "'{}' is used twice; give the table another alias"),
    ("Cannot automatically join: ", "USING: '{}' is not a column of both tables; write ON"),
    (
        "Unknown output column: ",
        "there is no column number {} to order or group by; write its name",
    ),
    (
        "Invalid set operation",
        "the parts of UNION, EXCEPT or INTERSECT need the same number of columns",
    ),
)


def _resolution_error(error: OptimizeError) -> str:
    """The error message for names that sqlglot's optimizer cannot resolve."""
    text = str(error).split("\n", 1)[0]
    for start, message in _RESOLUTION_ERRORS:
        if text.startswith(start):
            return message.format(text.removeprefix(start).rstrip("."))
    return (
        "some columns of this query are unknown; give each table an alias, and write alias.column"
    )


def _name_outputs(tree: exp.Expr) -> list[str]:
    """Give the output columns unique names: the query's, or else Flink's `EXPR$n`."""
    first = leftmost(tree)
    output = names.output_names(first.selects if isinstance(first, exp.Select) else [])
    if isinstance(first, exp.Select):
        for item, name in zip(first.selects, output, strict=True):
            if isinstance(item, exp.Alias):
                item.set("alias", quoted(name))
            elif item.alias_or_name != name:
                item.replace(exp.alias_(item.copy(), quoted(name)))
    return output


def bound(
    script: Script,
    node: exp.Expr,
    tree: exp.Expr,
    relations: Relations,
    type_of: Callable[[DuckDBPyType], str] = column_type,
) -> list[tuple[str, str]]:
    """Names and Flink types of a query's columns; `SqlError` at `node` if DuckDB cannot bind it."""
    try:
        return [(name, type_of(kind)) for name, kind in describe(generate(tree), relations)]
    except (BindError, ValueError) as failure:
        raise script.error_at(node, str(failure), refusal(failure)) from None


def _into_target(analyzed: Analyzed, target: TableInfo, columns: tuple[str, ...]) -> exp.Query:
    """The query's columns in the target's order and types; NULL for columns it does not give."""
    script, node = analyzed.parsed.script, analyzed.parsed.tree
    tree, output, types = analyzed.tree, analyzed.output, analyzed.types
    # A sum that fills a column may exceed its argument's type; the column's type limits it.
    for item in tree.expressions if isinstance(tree, exp.Select) else ():
        item.unalias().replace(aggregates.widened(item.unalias()))
    items: list[exp.Expr] = []
    for column, index in targets.column_mappings(script, node, target, columns, len(output)):
        made, kind = None, ""
        if index is not None:
            made, kind = column_of("made", output[index]), types[index]
        item = targets.converted(script, node, made, kind, column)
        items.append(exp.alias_(item, quoted(column.name)))
    return exp.Select(expressions=items, from_=exp.From(this=derived(tree, "made")))
