"""Checks the columns of windows: their names, and that their times are stored."""

from collections.abc import Iterable

from sqlglot import exp

from streamhouse.sql import functions, node_errors
from streamhouse.sql.functions.expression_builders import WINDOWED_TIME
from streamhouse.sql.functions.row_patterns import PLACE
from streamhouse.sql.parser.windowed_rows import WINDOWED
from streamhouse.sql.select_parts import sources
from streamhouse.sql.text import Script


def check_names(script: Script, select: exp.Select, names: Iterable[str]) -> None:
    """Raise `SqlError` if the rows in windows already have columns of windows."""
    seen: set[str] = set()
    for name in names if select.meta.get(WINDOWED) else ():
        if name in seen:
            message = (
                f"there would be two columns {name}; give the first one another name in a "
                f"subquery: SELECT {name} AS inner_{name}"
            )
            raise node_errors.error(script, select, message)
        seen.add(name)


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
            raise node_errors.unsupported(script, node.expressions[0], message)
    for window in tree.find_all(exp.Window):
        is_place = isinstance(window.parent, exp.Alias) and window.parent.alias == PLACE
        for term in window.args["order"].expressions if is_place else ():
            if _is_clock(term.this):
                message = (
                    "MATCH_RECOGNIZE in the order of processing time is not supported, since a "
                    "table does not keep the order in which rows came; use a column that stores a "
                    "time or a number"
                )
                raise node_errors.unsupported(script, term.this, message)


def _is_clock(node: exp.Expr) -> bool:
    """Whether an expression is the time of the query, through the subqueries below it."""
    if functions.current_time_name(node) is not None:
        return True
    select = node.find_ancestor(exp.Select)
    if not isinstance(node, exp.Column) or not isinstance(select, exp.Select):
        return False
    queries = {cte.alias: cte.this for cte in node.root().find_all(exp.CTE)}
    for source in sources(select):
        if source.alias_or_name == node.table:
            inner = queries.get(source.name) if isinstance(source, exp.Table) else source.this
            inner = inner.unnest() if isinstance(inner, exp.Subquery) else inner
            items = inner.selects if isinstance(inner, exp.Select) else []
            return any(_is_clock(i.unalias()) for i in items if i.alias_or_name == node.name)
    return False
