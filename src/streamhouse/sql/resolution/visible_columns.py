"""Checks the columns of a bounded query: names in scope, and stored times of windows."""

from collections.abc import Iterator

from sqlglot import exp
from sqlglot.optimizer.scope import Scope, traverse_scope

from streamhouse.close_matches import nearest
from streamhouse.sql.expressions.binder import BindError, Relations, check_case
from streamhouse.sql.functions.expression_builders import WINDOWED_TIME, current_time_name
from streamhouse.sql.functions.row_patterns import ALIAS, OWN, PLACE
from streamhouse.sql.resolution import columns as names
from streamhouse.sql.select_parts import cte_of, sources
from streamhouse.sql.text import Script

Names = dict[str, list[str] | None]
"""Each alias with its columns; None where these are not known."""


def check_columns(script: Script, tree: exp.Query, relations: Relations) -> None:
    """Raise `SqlError` for a column that no table in scope has, or that several have.

    Also if `AS t (a, b)` does not name each column of its query.
    """
    for values in tree.find_all(exp.Values):
        check_width(script, values, len(values.expressions[0].expressions))
    for scope in traverse_scope(tree):
        _check_column_list(script, scope)
        for columns in visible_in(scope, relations).values():
            try:
                check_case(columns or ())
            except BindError as error:
                raise script.error_at(scope.expression, str(error)) from None
        for column in scope.columns:
            # A scope also lists columns of its subqueries that may be outer references.
            if column.parent_select is scope.expression:
                _check_column(script, scope, column, relations)


def check_width(script: Script, node: exp.Expr, width: int, of: str = "query returns") -> None:
    """Raise `SqlError` if the alias of `node` has a column list of another length than `width`."""
    given = node.alias_column_names
    if given and len(given) != width:
        message = f"{node.alias} names {len(given)} column(s), but its {of} {width}"
        raise script.error_at(node, message)


def _check_column_list(script: Script, scope: Scope) -> None:
    node = scope.expression.parent
    while isinstance(node, exp.Subquery) and not node.alias:
        node = node.parent
    if isinstance(node, exp.Subquery | exp.CTE | exp.Lateral) and node.alias_column_names:
        columns = _selects(scope)
        if columns is not None:
            check_width(script, node, len(columns))


def leftmost(tree: exp.Expr) -> exp.Expr:
    """The SELECT that gives a query its column names: the first one of a UNION."""
    while isinstance(tree, exp.SetOperation | exp.Subquery):
        tree = tree.this
    return tree


def _check_column(script: Script, scope: Scope, column: exp.Column, relations: Relations) -> None:
    if isinstance(column.this, exp.Star):
        return
    scopes = list(_visible_scopes(scope, relations))
    if column.table:
        _check_qualified(script, column, scopes)
        return
    name = column.name
    clause = column.find_ancestor(exp.Order, exp.Group, exp.Having, exp.Select)
    own = scope.expression
    if isinstance(own, exp.Query) and not isinstance(clause, exp.Select):
        if name in own.named_selects:
            return
    # Columns of USING are unambiguous: both tables share them.
    joins = own.args.get("joins") or []
    joined = {column.name for join in joins for column in join.args.get("using") or []}
    for visible in scopes:
        owners = [owner for owner, columns in visible.items() if columns and name in columns]
        if len(owners) > 1 and name not in joined:
            choices = " or ".join(f"{owner}.{name}" for owner in owners)
            message = f"column '{name}' is ambiguous; write {choices}"
            raise script.error_at(column, message)
        if owners or None in visible.values():
            return
    everything = {n for visible in scopes for columns in visible.values() for n in columns or ()}
    message = f"there is no column '{name}'; {nearest(name, everything)}"
    raise script.error_at(column, message)


def _check_qualified(script: Script, column: exp.Column, scopes: list[Names]) -> None:
    alias, name = column.table, column.name
    for visible in scopes:
        if alias in visible:
            columns = visible[alias]
            if columns is not None and name not in columns:
                known = [each for each in columns if not each.startswith(OWN)]
                start = "there is" if alias == ALIAS else f"'{alias}' has"
                message = f"{start} no column '{name}'; {nearest(name, known)}"
                raise script.error_at(column, message)
            return
        if any(columns is not None and alias in columns for columns in visible.values()):
            return
    everything = {other for visible in scopes for other in visible}
    message = f"there is no table or alias '{alias}'; {nearest(alias, everything)}"
    raise script.error_at(column, message)


def _visible_scopes(scope: Scope, relations: Relations) -> Iterator[Names]:
    """Yields the names visible in a scope, then those of each enclosing scope."""
    current: Scope | None = scope
    while current is not None:
        yield visible_in(current, relations)
        # A subquery in FROM cannot refer to the query of that FROM, but to those around it.
        while current is not None and (current.is_derived_table or current.is_cte):
            current = current.parent
        current = None if current is None else current.parent


def visible_in(scope: Scope, relations: Relations) -> Names:
    """Each alias with its columns; None where these are not known."""
    names_by_alias: Names = {}
    for alias, (node, source) in scope.selected_sources.items():
        renamed = _renamed(node, source)
        if renamed:
            names_by_alias[alias] = renamed
        elif isinstance(source, Scope):
            names_by_alias[alias] = _selects(source)
        else:
            relation = relations.get(source.name)
            names_by_alias[alias] = list(relation) if relation is not None else None
    return names_by_alias


def _renamed(node: exp.Expr, source: exp.Table | Scope) -> list[str]:
    """The column names in parentheses after an alias or the name of a CTE; empty without any."""
    nodes = [node]
    while isinstance(nodes[-1].parent, exp.Subquery):
        nodes.append(nodes[-1].parent)
    if isinstance(source, Scope):
        around = source.expression.parent
        while isinstance(around, exp.SetOperation):  # the query of a recursive CTE
            around = around.parent
        nodes += [around] if around is not None else []
    for each in nodes:
        alias, place = each.args.get("alias"), each.args.get("offset")
        if isinstance(alias, exp.TableAlias) and alias.columns:
            ordinality = [place] if isinstance(place, exp.Identifier) else []
            return [column.name for column in (*alias.columns, *ordinality)]
    return []


def _selects(scope: Scope) -> list[str] | None:
    """The output columns of a scope; None where a `*` is not expanded."""
    first = leftmost(scope.expression)
    if not isinstance(first, exp.Select) or any(map(names.is_star, first.expressions)):
        return None
    return [item.alias_or_name for item in first.expressions]


def check_stored_times(script: Script, tree: exp.Query) -> None:
    """Raise `UnsupportedSqlError` for windows and patterns of rows over processing time.

    Each query would move such a window, and rows have no such order in a table.

    All columns must be qualified.
    """
    for node in tree.find_all(exp.Anonymous):
        if node.name == WINDOWED_TIME and _is_clock(node.expressions[0]):
            message = (
                "windows over processing time are not supported here, since rows would move to "
                "the window of the present time; use a column that stores a time, or in a stream "
                "let TABLE name the table or view that has PROCTIME()"
            )
            raise script.unsupported(node.expressions[0], message)
    for window in tree.find_all(exp.Window):
        is_place = isinstance(window.parent, exp.Alias) and window.parent.alias == PLACE
        for term in window.args["order"].expressions if is_place else ():
            if _is_clock(term.this):
                message = (
                    "MATCH_RECOGNIZE in the order of processing time is not supported, since a "
                    "table does not keep the order in which rows came; use a column that stores a "
                    "time or a number"
                )
                raise script.unsupported(term.this, message)


def _is_clock(node: exp.Expr) -> bool:
    """Whether an expression is the time of the query, through the subqueries below it."""
    if current_time_name(node) is not None:
        return True
    select = node.find_ancestor(exp.Select)
    if not isinstance(node, exp.Column) or not isinstance(select, exp.Select):
        return False
    for source in sources(select):
        if source.alias_or_name == node.table:
            query = cte_of(source) if isinstance(source, exp.Table) else source
            inner = None if query is None else query.this
            inner = inner.unnest() if isinstance(inner, exp.Subquery) else inner
            items = inner.selects if isinstance(inner, exp.Select) else []
            return any(_is_clock(i.unalias()) for i in items if i.alias_or_name == node.name)
    return False
