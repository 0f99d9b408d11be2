"""Expands views: replaces the name of a view in a query by the view's own query.

So a stream over a view reads the view's table, and the rules for subqueries also apply to views.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from sqlglot import exp

from streamhouse.errors import SqlError
from streamhouse.sql.plan import Name, Resolver, ViewInfo
from streamhouse.sql.resolution import as_of_clause, versions
from streamhouse.sql.resolution import columns as names
from streamhouse.sql.resolution.columns import Parsed
from streamhouse.sql.syntax import Query, TextPosition
from streamhouse.sql.text import Script, place

_MOVED_ARGS = ("joins", "laterals", "pivots", "sample")


def inlined(parsed: Parsed, resolver: Resolver) -> Parsed:
    """The query with each view that it reads replaced by the view's own query.

    An error in a view has the position at which the query names the view. Raises
    `UnsupportedSqlError` for `AS OF` on a view, and for OPTIONS on a view of several tables. Joins
    as of a stored time have it as a term of ON.
    """
    used: list[str] = []
    tree = _Views(parsed.script, resolver, used).inlined(parsed.tree, ())
    as_of_clause.mark(parsed.script, tree, resolver)
    # A changed view must change the fingerprint of the query.
    canonical = "\n".join([parsed.canonical, *used])
    return Parsed(parsed.script, tree, canonical) if used else parsed


def views_expanded(parsed: Parsed, tree: exp.Query, resolver: Resolver) -> exp.Query:
    """As `inlined`, for a tree that need not be that of the query's text."""
    found = inlined(replace(parsed, tree=tree), resolver).tree
    assert isinstance(found, exp.Query)
    return found


@dataclass(frozen=True)
class _Views:
    """Replaces views by their queries; appends the text of each of these to `used`."""

    script: Script
    resolver: Resolver
    used: list[str]

    def inlined(self, tree: exp.Expr, enclosing: tuple[Name, ...]) -> exp.Expr:
        for table in names.leaves(tree):
            if not isinstance(table.this, exp.Identifier):
                continue
            view = versions.view_of(self.resolver, table)
            if view is None:
                continue
            self.used.append(view.query)
            new = self._subquery(table, view, enclosing)
            if table is tree:
                return new
            table.replace(new)
        return tree

    def _subquery(self, table: exp.Table, view: ViewInfo, enclosing: tuple[Name, ...]) -> exp.Expr:
        if view.name in enclosing:
            name = ".".join(view.name[-2:])
            message = f"view {name} reads itself; DROP it and CREATE it again"
            raise self.script.error_at(table, message)
        version = table.args.get("version")
        if version is not None and not isinstance(version.args.get("expression"), exp.Column):
            raise as_of_clause.not_as_of(self.script, table, table.name)
        position = place(table.this)
        inner = self.inlined(_body(view, position), (*enclosing, view.name))
        _pass_options(self.script, table, inner)
        alias = table.args.get("alias") or exp.TableAlias(this=table.this.copy())
        new = exp.Subquery(this=inner, alias=alias.copy())
        new.meta.update(position)
        new.set("version", version)
        for key in _MOVED_ARGS:
            if table.args.get(key):
                new.set(key, table.args[key])
        return new


def _body(view: ViewInfo, position: Mapping[str, int]) -> exp.Expr:
    """The view's tree; all nodes get `position`, and tables the view's catalog."""
    query = Query(view.query, TextPosition(1, 1), functions=view.functions)
    body = names.parse_query(query).tree
    if not isinstance(body, exp.Query | exp.Values):
        name = ".".join(view.name[-2:])
        raise SqlError(f"view {name} is not a query; DROP it and CREATE it again")
    for table in names.leaves(body):
        if len(names.table_name(table)) == 2 and len(view.name) == 3:
            table.set("catalog", exp.to_identifier(view.name[0], quoted=True))
        table.meta[names.VIEWED] = True
    for select in list(body.find_all(exp.Select)):
        names.name_expressions(select)
    for node in body.walk():
        if "start" in node.meta:
            node.meta.update(position)
        for hint in node.meta.get("hints", ()):
            hint.meta.update(position)
    return body


def _pass_options(script: Script, view: exp.Table, inner: exp.Expr) -> None:
    """Copy OPTIONS on a view to the table that it reads; raises unless it reads exactly one."""
    hints = view.meta.get("hints")
    if not hints:
        return
    tables = [leaf for leaf in names.leaves(inner) if leaf.args.get("version") is None]
    if len({names.table_name(table) for table in tables}) != 1:
        read = ", ".join(dict.fromkeys(".".join(names.table_name(table)[-2:]) for table in tables))
        raise script.unsupported(
            hints[0],
            f"OPTIONS on view '{view.name}' could apply to any of its tables ({read}); write "
            "them in the view, after the table's name",
        )
    for table in tables:
        table.meta["hints"] = [*table.meta.get("hints", ()), *(hint.copy() for hint in hints)]
