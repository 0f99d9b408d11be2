"""Refuses the clauses of a query that no streaming query computes, before names are resolved."""

from collections.abc import Iterator

from sqlglot import exp

from streamhouse.errors import NotStreamedError
from streamhouse.sql.functions.expression_builders import current_time_name
from streamhouse.sql.streaming import row_number
from streamhouse.sql.text import Script

_ARGS: dict[type[exp.Expr], tuple[tuple[str, ...], str]] = {
    exp.Select: (("expressions", "from_", "joins", "where", "group", "hint", "with_"), "{}"),
    exp.Union: (("this", "expression", "with_"), "{} around UNION ALL"),
    exp.Table: (("this", "db", "catalog", "alias", "version"), "{} after a table"),
    exp.Subquery: (("this", "alias", "with_"), "{} after a subquery"),
    exp.Group: (("expressions",), "GROUP BY {}"),
}
"""The arguments that a clause may have, and the reason to refuse any other."""
_WORDS = {"order": "ORDER BY", "windows": "WINDOW", "laterals": "LATERAL", "locks": "FOR UPDATE"}


def check(script: Script, tree: exp.Expr) -> None:
    """Raise `NotStreamedError` for a query that is no stream.

    Raises `UnsupportedSqlError`, with its position, for a mistake in a lookup join.
    """
    for reason in _refusals(tree):
        raise NotStreamedError(reason)
    for join in tree.find_all(exp.Join):
        _check_lookup(script, join)


def _refusals(tree: exp.Expr) -> Iterator[str]:
    """The reasons not to stream a query, those of outer queries first."""
    if not isinstance(tree, exp.Query):
        yield _word(tree)
    numbers = {id(row_number.numbered(select)) for select in tree.find_all(exp.Select)}
    for node in tree.walk():
        known, reason = _ARGS.get(type(node), ((), ""))
        # The parser sets the clauses around a UNION in any order.
        others = (key for key, value in node.args.items() if value and key not in known)
        extra = max(others, default="") if reason else ""
        match node:
            case exp.Union(args={"distinct": True}):
                yield "UNION without ALL"
            case exp.SetOperation() if not isinstance(node, exp.Union):
                yield _word(node)
            case exp.Select() if node.args.get("from_") is None:
                yield "a SELECT without FROM"
            case exp.Window() if id(node.parent) not in numbers:
                yield "a window function"
            case exp.Query() if node is not tree and not _is_relation(node):
                yield "a subquery"
            case exp.With(args={"recursive": True}):
                yield "WITH RECURSIVE"
            case exp.TableAlias() if node.columns:
                yield "column names after an alias"
            case exp.Subquery() if node.meta.get("hints"):
                yield "a hint after a subquery"
            case exp.Cube() | exp.GroupingSets() | exp.Rollup():
                yield f"GROUP BY {node.sql().partition('(')[0].strip()}"
            case exp.From():
                yield from _of_source(node.this)
            case exp.Join():
                yield from _of_join(node)
        if extra:
            yield reason.format(_WORDS.get(extra, extra).upper().replace("_", " "))


def _word(node: exp.Expr) -> str:
    return type(node).__name__.upper()


def _is_relation(query: exp.Expr) -> bool:
    """Whether a query is in FROM, a part of UNION ALL, or a WITH query."""
    around = exp.From | exp.Subquery | exp.SetOperation | exp.CTE
    return isinstance(query.parent, around | exp.Join)


def _of_source(source: exp.Expr) -> Iterator[str]:
    inner = source.unnest() if isinstance(source, exp.Subquery) else source
    if not isinstance(inner, exp.Query | exp.Table) or isinstance(
        source, exp.Subquery
    ) > isinstance(inner, exp.Query):
        yield _word(inner)
    if source.args.get("version") is not None:
        yield "FOR … AS OF at the table of FROM"


def _of_join(join: exp.Join) -> Iterator[str]:
    table = join.this
    if not isinstance(table, exp.Table) or table.args.get("version") is None:
        is_table = isinstance(table, exp.Table | exp.Subquery)
        yield "a join of two streams" if is_table else _word(table)
    side, kind = join.side.upper(), join.kind.upper()
    if side not in ("", "LEFT") or kind not in ("", "INNER", "OUTER") or join.method:
        yield f"{' '.join(word for word in (join.method, side, kind) if word)} JOIN"


def _check_lookup(script: Script, join: exp.Join) -> None:
    if join.args.get("on") is None:
        message = (
            "a lookup join needs ON with an equality of columns; write ON o.customer_id = c.id"
        )
        raise script.unsupported(join.this, message)
    version = join.this.args["version"]
    is_column = version.this == "TIMESTAMP" and isinstance(version.expression, exp.Column)
    if not is_column and current_time_name(version.expression) != "PROCTIME":
        message = "a lookup join needs FOR SYSTEM_TIME AS OF a column PROCTIME()"
        raise script.unsupported(version, message)
