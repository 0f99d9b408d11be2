"""Resolves the tables and columns of a query by name; errors have their position."""

import functools
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, replace

from sqlglot import exp
from sqlglot.optimizer.scope import traverse_scope

from streamhouse.close_matches import nearest
from streamhouse.errors import SqlError, TableError
from streamhouse.sql.expressions import lowering
from streamhouse.sql.functions.expression_builders import column_of
from streamhouse.sql.parser import hints, query_parser
from streamhouse.sql.plan import CURRENT, AsOf, Name, Resolver, TableInfo
from streamhouse.sql.select_parts import cte_of
from streamhouse.sql.syntax import Query
from streamhouse.sql.text import Script, forget_places, of_query
from streamhouse.sql.types import duck_type
from streamhouse.sql.udf.function import Declaration

_LONG = 50_000
"""The trees of texts with as many characters are not kept."""
VIEWED = "viewed"
"""Key in the `meta` of a table's node: a view reads this table."""


@dataclass(frozen=True)
class Parsed:
    """A query's tree, its script (for positions) and its text without layout (for fingerprints)."""

    script: Script
    tree: exp.Expr
    canonical: str


def parse_query(query: Query) -> Parsed:
    """The tree of a query, which may be changed; raises `SqlError`."""
    script = of_query(query)
    parse = _parsed if len(query.text) < _LONG else _parsed.__wrapped__
    parsed = parse(script, len(script.text) - len(query.text), tuple(query.functions.values()))
    return replace(parsed, script=script, tree=parsed.tree.copy())


# A statement is planned by several planners in turn, and by a dry run before.
@functools.lru_cache(maxsize=4)
def _parsed(script: Script, start: int, functions: tuple[Declaration, ...]) -> Parsed:
    """`functions`: those of the script, which do not count when scripts are compared."""
    tokens = query_parser.lex(script, start)
    tree = query_parser.parse_tokens(script, tokens)
    words = [f"{t.token_type.name} {' '.join(t.text.split())}" for t in tokens]
    canonical = "\n".join(
        word.upper() if not word.startswith(("VAR ", "IDENTIFIER ", "STRING ", "HINT ")) else word
        for word in words
    )
    canonical = canonical.replace("IDENTIFIER ", "VAR ")
    _check_stars(script, tree)
    return Parsed(script, lowering.simplify(script, tree), canonical)


def _check_stars(script: Script, tree: exp.Expr) -> None:
    """Raise `SqlError` for `*` as a value, such as `* LIKE 'a%'`."""
    for star in tree.find_all(exp.Star):
        item = star.parent if isinstance(star.parent, exp.Column) else star
        value = isinstance(item.parent, exp.Binary) and not isinstance(item.parent, exp.Dot)
        if value or star.args.get("ilike"):
            message = "* stands for columns, and is no value; write the columns out"
            raise script.error_at(item, message)


def table_name(table: exp.Table) -> Name:
    return tuple(part.name for part in table.parts)


def leaves(tree: exp.Expr) -> list[exp.Table]:
    """The catalog tables that a query reads, without names of CTEs, in the order of the text."""
    queries = {cte.alias for cte in tree.root().find_all(exp.CTE)}
    tables = [
        table
        for table in tree.find_all(exp.Table)
        if (isinstance(table.this, exp.Identifier) if table.args.get("db") else
            table.name not in queries or cte_of(table) is None)
    ]  # fmt: skip
    return sorted(tables, key=lambda table: table.this.meta.get("start", 0))


def resolve_table(
    script: Script, table: exp.Table, resolver: Resolver, as_of: AsOf = CURRENT
) -> TableInfo:
    """The table of a name; raises `SqlError` with its position for an unknown one."""
    if not isinstance(table.this, exp.Identifier):
        message = "table functions are not supported here; name a table, or write a (SELECT …)"
        raise script.unsupported(table, message)
    try:
        if table.meta.get(VIEWED) and not as_of:
            return resolver.viewed(table_name(table))
        return resolver.table(table_name(table), as_of)
    except SqlError:
        raise
    except TableError as error:
        names = [part for part in table.parts if "start" in part.meta]
        if not names:
            raise
        start, end = names[0].meta["start"], names[-1].meta["end"] + 1
        raise script.error(str(error), start, end) from None


def table_options(script: Script, node: exp.Expr) -> dict[str, str]:
    """The options in the OPTIONS hints of a table."""
    options: dict[str, str] = {}
    for hint in node.meta.get("hints", ()):
        options |= hints.table_options(script, hint.name, hint.meta["start"])
    return options


def physical(info: TableInfo) -> dict[str, str]:
    """Physical columns with their DuckDB types."""
    return {column.name: duck_type(column.type) for column in info.columns}


def visible_columns(info: TableInfo, alias: str) -> dict[str, exp.Expr]:
    """The columns under an alias, as declared; computed ones are expressions over the others.

    Raises `TableError` for a computed column over a column that does not exist.
    """
    stored = {column.name: column_of(alias, column.name) for column in info.columns}
    visible: dict[str, exp.Expr] = {**stored}
    for computed in info.computed:
        script = Script(computed.expression)
        tree = query_parser.parse_tokens(script, query_parser.lex(script))
        tree = lowering.simplify(script, tree)
        for column in list(tree.find_all(exp.Column)):
            name, *fields = (part.name for part in column.parts)
            if name not in visible:
                raise TableError(
                    f"table {'.'.join(info.name)}: computed column '{computed.name}' uses "
                    f"'{name}', which is not a column; {nearest(name, visible)}"
                )
            new = visible[name].copy()
            new = new if name in stored else exp.Paren(this=new)
            for field in fields:
                new = exp.Dot(this=new, expression=exp.to_identifier(field, quoted=True))
            tree = new if column is tree else tree
            column.replace(new)
        forget_places(tree)
        visible[computed.name] = tree
    return {column.name: visible[column.name] for column in info.declared}


def is_star(item: exp.Expr) -> bool:
    """Whether a projection is `*` or `alias.*` (COUNT(*) is not)."""
    has_star = isinstance(item, exp.Column) and isinstance(item.this, exp.Star)
    return has_star or isinstance(item, exp.Star)


def output_names(items: Iterable[exp.Expr]) -> list[str]:
    """The names of projections as in Flink, made unique by a number at the end."""
    names: list[str] = []
    for index, item in enumerate(items):
        preferred = item.alias if isinstance(item, exp.Alias) else ""
        if not preferred and isinstance(item, exp.Column | exp.Dot):
            preferred = item.name
        preferred = preferred or f"EXPR${index}"
        name, number = preferred, 0
        while name in names:
            name, number = f"{preferred}{number}", number + 1
        names.append(name)
    return names


def name_expressions(select: exp.Expr) -> None:
    """Name each unnamed expression of a SELECT as Flink does: EXPR$n."""
    for index, item in enumerate(select.expressions if isinstance(select, exp.Select) else ()):
        if not isinstance(item, exp.Alias | exp.Column | exp.Star | exp.Dot):
            name = exp.to_identifier(f"EXPR${index}", quoted=True)
            # `exp.alias_` gives a subquery the alias of a table, and copies the inner queries,
            # which are named next.
            alias = exp.Alias(alias=name)
            item.replace(alias)
            alias.set("this", item)


def reserved(
    script: Script,
    names: Iterable[str],
    node: exp.Expr,
    used: Container[str] = ("_row", "rowkind", "_view_key"),
) -> None:
    """Raise for a column name that the engine uses itself."""
    for name in names:
        if name in used:
            raise script.error_at(node, f"'{name}' is a reserved name; rename the column", SqlError)


def first_set(args: Mapping[str, object], allowed: Iterable[str]) -> str | None:
    """The first argument of a node that is set and not allowed; None if there is none."""
    allowed_keys = set(allowed)
    return next((key for key, value in args.items() if value and key not in allowed_keys), None)


def used_columns(
    read: Mapping[str, Container[str]], relation: str, info: TableInfo
) -> tuple[str, ...]:
    """The columns of a relation that are read, by `columns_read`, in the table's order."""
    return tuple(column.name for column in info.columns if column.name in read.get(relation, ()))


def columns_read(trees: list[exp.Expr]) -> dict[str, set[str]]:
    """The columns that the trees read of each relation."""
    columns_by_relation: dict[str, set[str]] = {}
    for scope in (scope for tree in trees for scope in traverse_scope(tree)):
        for alias, source in scope.sources.items():
            if isinstance(source, exp.Table):
                used = columns_by_relation.setdefault(source.name, set())
                used |= {column.name for column in scope.source_columns(alias)}
        # `source_columns` has none that a relation reads of those before it, as UNNEST does.
        for column in scope.external_columns:
            around = scope.parent
            while around is not None and column.table not in around.sources:
                around = around.parent
            read = around.sources[column.table] if around is not None else None
            if isinstance(read, exp.Table):
                columns_by_relation.setdefault(read.name, set()).add(column.name)
    return columns_by_relation
