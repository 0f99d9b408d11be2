"""Expands `*` of bounded queries, as Flink does: the columns of USING are first, and once."""

from collections.abc import Iterator

from sqlglot import exp
from sqlglot.optimizer.scope import Scope

from streamhouse.close_matches import nearest
from streamhouse.sql import node_errors
from streamhouse.sql.expressions.binder import Relations
from streamhouse.sql.functions.expression_builders import column_of, quoted
from streamhouse.sql.resolution import columns as names
from streamhouse.sql.resolution.visible_columns import Names, visible_in
from streamhouse.sql.text import Script


def expand(select: exp.Select, found: list[exp.Expr]) -> None:
    """Let a SELECT have its `items`; number the names that a subquery has twice: a, a0."""
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


def items(
    script: Script, scope: Scope, select: exp.Select, relations: Relations
) -> Iterator[exp.Expr]:
    """The projections, with stars expanded where the columns are known."""
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
        elif joined and not qualifier:
            yield from _changed(script, _star(item), _joined_columns(select, visible))
        else:
            columns = [column_of(owner, name) for owner in owners for name in visible[owner] or ()]
            yield from _changed(script, _star(item), columns)


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


def _star(item: exp.Expr) -> exp.Expr:
    star: exp.Expr = item.this if isinstance(item, exp.Column) else item
    return star


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
            raise node_errors.error(script, node, message)
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
