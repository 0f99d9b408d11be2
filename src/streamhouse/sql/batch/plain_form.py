"""Rewrites clauses of a query to plainer ones that mean the same, before its names are resolved."""

import itertools
from collections import Counter
from collections.abc import Iterator

from sqlglot import exp
from sqlglot.optimizer.scope import Scope, traverse_scope
from sqlglot.transforms import eliminate_semi_and_anti_joins, eliminate_window_clause

from streamhouse.close_matches import nearest
from streamhouse.sql.batch import row_comparisons
from streamhouse.sql.expressions.binder import Relations
from streamhouse.sql.expressions.nested_values import UNNAMED
from streamhouse.sql.functions.expression_builders import GROUP_ID, cast, column_of, quoted
from streamhouse.sql.parser.windowed_rows import WINDOWED
from streamhouse.sql.resolution import columns as names
from streamhouse.sql.resolution.visible_columns import Names, visible_in
from streamhouse.sql.select_parts import over
from streamhouse.sql.text import Script


def name_derived_tables(tree: exp.Query) -> None:
    """Give each subquery in FROM or JOIN that has no alias one of its own."""
    taken = {node.alias_or_name for node in tree.find_all(exp.Table, exp.Subquery)}
    free = (name for number in itertools.count() if (name := f"_q{number}") not in taken)
    for node in list(tree.find_all(exp.Subquery, exp.Lateral)):
        if node.arg_key == "on":
            node.replace(exp.Paren(this=node.copy()))  # or sqlglot takes it for a table
            continue
        placed = isinstance(node.parent, exp.From | exp.Join) or isinstance(node, exp.Lateral)
        if placed and not node.alias and isinstance(node.this, exp.Query):
            alias = exp.TableAlias(this=exp.to_identifier(next(free), quoted=True))
            node.set("alias", alias)


def name_elements(tree: exp.Query) -> None:
    """Name the columns of each UNNEST and VALUES in FROM that names none, as Flink does.

    The only column has the name of the alias.
    """
    for number, node in enumerate(tree.find_all(exp.Unnest, exp.Values)):
        if not isinstance(node.parent, exp.From | exp.Join) or node.alias_column_names:
            continue
        place = ["ORDINALITY"] if node.args.get("offset") else []
        width = len(node.expressions[0].expressions) if isinstance(node, exp.Values) else 1
        names = [*(f"EXPR${i}" for i in range(width)), *place]
        columns = [node.alias] if node.alias and len(names) == 1 else names
        alias = exp.to_identifier(node.alias or f"_u{number}", quoted=True)
        identifiers = [exp.to_identifier(name, quoted=True) for name in columns]
        node.set("alias", exp.TableAlias(this=alias, columns=identifiers))
        node.meta[UNNAMED] = True


def tell_aliases_apart(tree: exp.Query) -> None:
    """Number aliases that differ only in case, which DuckDB takes for one; all are qualified."""
    found = [
        (node, "table" if isinstance(node, exp.Column) else "this")
        for node in tree.find_all(exp.TableAlias, exp.Table, exp.Column)
    ]
    names = dict.fromkeys(node.text(key) for node, key in found if node.text(key))
    known = {name.lower() for name in names}
    first: dict[str, str] = {}
    for name in names:
        if first.setdefault(name.lower(), name) != name:
            new = next(n for i in itertools.count() if (n := f"{name}_{i}").lower() not in known)
            known.add(new.lower())
            for node, key in found:
                if node.text(key) == name:
                    node.set(key, exp.to_identifier(new, quoted=True))


def rewrite(script: Script, tree: exp.Query, relations: Relations) -> None:
    """Rewrite all clauses, inner queries first."""
    row_comparisons.rewrite(tree)
    for each in list(tree.find_all(exp.Select)):
        # `a SEMI JOIN b ON c` is `a WHERE EXISTS (SELECT 1 FROM b WHERE c)`, ANTI is NOT EXISTS,
        # unless a join adds rows that meet no row of `a`.
        if not any(join.side in ("RIGHT", "FULL") for join in each.args.get("joins") or ()):
            eliminate_semi_and_anti_joins(each)
    for each in tree.find_all(exp.Select):
        eliminate_window_clause(each)
        _plain_groups(each)
        _distinct_on(each)
    for scope in traverse_scope(tree):
        select = scope.expression
        if isinstance(select, exp.Select):
            _natural_joins(script, scope, select, relations)
            _constant_groups(select)
            _group_ids(script, select)
            items = list(_items(script, scope, select, relations))
            _check_window_columns(script, select, items)
            _set_items(select, items)


def _natural_joins(script: Script, scope: Scope, select: exp.Select, relations: Relations) -> None:
    """NATURAL JOIN joins by all columns that both sides have; without any it is a CROSS JOIN."""
    joins: list[exp.Join] = select.args.get("joins") or []
    if not any(join.method.upper() == "NATURAL" for join in joins):
        return
    visible = visible_in(scope, relations)
    left = list(visible.get(select.args["from_"].this.alias_or_name) or ())
    for join in joins:
        right = visible.get(join.this.alias_or_name) or []
        if join.method.upper() == "NATURAL":
            if join.kind in ("SEMI", "ANTI"):
                message = f"NATURAL {join.kind} JOIN is not supported; name the columns in USING"
                raise script.unsupported(join, message)
            shared = [exp.to_identifier(name, quoted=True) for name in left if name in right]
            join.set("method", None)
            join.set("using", shared)
            if not shared and join.side:
                join.set("on", exp.true())
            elif not shared:
                join.set("kind", "CROSS")
        left += [name for name in right if name not in left]


def _plain_groups(select: exp.Select) -> None:
    """GROUP BY ALL groups by the items without aggregates; WITH ROLLUP is ROLLUP (…)."""
    group = select.args.get("group")
    if group is None:
        return
    if group.args.get("all") and not group.expressions:
        items = [item.unalias() for item in select.expressions]
        called = [item for item in items if item.find(exp.AggFunc, exp.Window)]
        by = [item.copy() for item in items if item not in called and item.find(exp.Column)]
        group.set("expressions", by)
        select.set("group", group if by else None)
        if not (by or called):
            select.set("distinct", exp.Distinct())
    for kind in ("rollup", "cube"):
        for each in group.args.get(kind) or ():
            if not each.expressions:
                each.set("expressions", group.expressions)
                group.set("expressions", [])
    group.set("all", None)


def _distinct_on(select: exp.Select) -> None:
    """DISTINCT ON (a, …) takes the first row of each a, …, in the order of ORDER BY."""
    distinct = select.args.get("distinct")
    columns = distinct.args.get("on") if distinct is not None else None
    if columns is None:
        return
    by_name = {item.alias: item.unalias() for item in select.expressions if item.alias}
    order = [each.copy() for each in getattr(select.args.get("order"), "expressions", ())]
    for term in order:
        value = term.this
        if isinstance(value, exp.Literal) and value.name.isdigit():
            for item in select.expressions[max(int(value.name) - 1, 0) :][:1]:
                value.replace(item.unalias().copy())
        elif isinstance(value, exp.Column) and not value.table and value.name in by_name:
            value.replace(by_name[value.name].copy())
    select.set("distinct", None)
    number = over(exp.RowNumber(), columns.expressions, order)
    first = exp.EQ(this=number, expression=exp.Literal.number(1))
    select.set("qualify", exp.Qualify(this=first))


def _constant_groups(select: exp.Select) -> None:
    """A number in GROUP BY that is the place of an aggregate is a constant, as in Flink."""
    group = select.args.get("group")
    for literal in list(group.find_all(exp.Literal)) if group is not None else ():
        if not literal.is_string and isinstance(literal.parent, exp.Group | exp.Rollup | exp.Cube):
            place = int(literal.name) - 1 if literal.name.isdigit() else -1
            items = select.expressions[place : place + 1] if place >= 0 else []
            if any(item.find(exp.AggFunc) for item in items):
                literal.replace(cast(literal.copy(), "INT"))


def _group_ids(script: Script, select: exp.Select) -> None:
    """GROUP_ID() is 0, except in grouping sets that occur more than once."""
    called = [node for node in select.find_all(exp.Cast) if node.meta.get(GROUP_ID)]
    group = select.args.get("group")
    if not called or group is None:
        return
    several = (exp.GroupingSets, exp.Rollup, exp.Cube)
    kinds = [node for node in group.expressions if isinstance(node, several)]
    sets = Counter(item.sql() for kind in kinds for item in kind.expressions)
    if len(kinds) > 1 or any(count > 1 for count in sets.values()):
        message = "GROUP_ID of grouping sets that occur twice is not supported; write each set once"
        raise script.unsupported(called[0], message)


def _check_window_columns(script: Script, select: exp.Select, items: list[exp.Expr]) -> None:
    """Raise `SqlError` if the rows in windows already have columns of windows."""
    seen: set[str] = set()
    for name in (each.alias_or_name for each in items if select.meta.get(WINDOWED)):
        if name in seen:
            message = (
                f"there would be two columns {name}; give the first one another name in a "
                f"subquery: SELECT {name} AS inner_{name}"
            )
            raise script.error_at(select, message)
        seen.add(name)


def _set_items(select: exp.Select, found: list[exp.Expr]) -> None:
    """Let a SELECT have these items; number the names that a subquery has twice: a, a0."""
    if any(names.is_star(item) for item in found):
        return
    plain = [item.alias_or_name for item in found]
    if select.parent is not None and len(set(plain)) < len(plain):
        numbered = names.output_names(found)
        found = [
            item if name == item.alias_or_name else exp.alias_(item.unalias(), name, quoted=True)
            for item, name in zip(found, numbered, strict=True)
        ]
    select.set("expressions", found)


def _items(
    script: Script, scope: Scope, select: exp.Select, relations: Relations
) -> Iterator[exp.Expr]:
    """The projections, with `*` expanded, as in Flink, where the columns are known."""
    visible = visible_in(scope, relations)
    joined = any(join.args.get("using") for join in select.args.get("joins") or ())
    for item in select.expressions:
        qualifier = item.table if isinstance(item, exp.Column) else ""
        of = [owner for owner, columns in visible.items() if qualifier in (columns or ())]
        if names.is_star(item) and qualifier not in visible and len(of) == 1:
            item.set("db", quoted(of[0]))
        if names.is_star(item) and item.text("db"):
            yield from _fields(item, _type(scope, item.text("db"), qualifier, relations))
            continue
        owners = [qualifier] if qualifier else list(visible)
        if not names.is_star(item) or any(visible.get(owner) is None for owner in owners):
            yield item
            continue
        if joined and not qualifier:
            columns = _joined_columns(select, visible)
        else:
            columns = [column_of(owner, name) for owner in owners for name in visible[owner] or ()]
        yield from _changed(script, item.this if isinstance(item, exp.Column) else item, columns)


def _fields(item: exp.Column, row: exp.DataType | None) -> Iterator[exp.Expr]:
    """The fields of `t.r.*`; the star itself if `r` is not known to be a row."""
    if row is None or not row.is_type(exp.DType.STRUCT):
        yield item
        return
    for field in row.expressions:
        column = exp.Column(this=quoted(field.name), table=item.args["table"], db=item.args["db"])
        yield exp.alias_(column.copy(), field.name, quoted=True)


def _type(scope: Scope, alias: str, name: str, relations: Relations) -> exp.DataType | None:
    """The type of a column that comes from a table, or from a CAST in a subquery; else None."""
    _, source = scope.selected_sources.get(alias, (None, None))
    if isinstance(source, exp.Table):
        kind = relations.get(source.name, {}).get(name)
        return None if kind is None else exp.DataType.build(kind, dialect="duckdb")
    if source is None or not isinstance(source.expression, exp.Select):
        return None
    found = (each.unalias() for each in source.expression.selects if each.alias_or_name == name)
    inner = next(found, None)
    if isinstance(inner, exp.Column):
        return _type(
            source, inner.table or next(iter(source.selected_sources)), inner.name, relations
        )
    return inner.to if isinstance(inner, exp.Cast) else None


def _changed(script: Script, star: exp.Expr, columns: list[exp.Column]) -> Iterator[exp.Expr]:
    """The columns of a star after its EXCEPT, REPLACE and RENAME."""
    left_out = {(each.text("table"), each.name): each for each in star.args.get("except_") or ()}
    values = {each.alias: each for each in star.args.get("replace") or ()}
    renamed = {each.this.name: each.alias for each in star.args.get("rename") or ()}
    known = [(table, each.name) for each in columns for table in ("", each.table)]
    for named, node in left_out.items():
        if named not in known:
            message = (
                f"* has no column '{node.name}'; {nearest(node.name, [name for _, name in known])}"
            )
            raise script.error_at(node, message)
    for column in columns:
        name = column.name
        if ("", name) in left_out or (column.table, name) in left_out:
            continue
        new = renamed.get(name, name)
        yield values.get(name, column if new == name else exp.alias_(column, new, quoted=True))


def _joined_columns(select: exp.Select, visible: Names) -> list[exp.Column]:
    """The columns of all tables; for each join those of USING come first, and once."""
    columns: list[exp.Column] = []
    for join in (select.args["from_"], *select.args["joins"]):
        alias = join.this.alias_or_name
        columns += [column_of(alias, name) for name in visible.get(alias) or ()]
        shared = [column.name for column in join.args.get("using") or ()]
        first = [exp.column(quoted(name)) for name in shared]
        columns = [*first, *(column for column in columns if column.name not in shared)]
    return columns
