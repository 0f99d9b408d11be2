"""`FOR SYSTEM_TIME AS OF` a column: which is a processing time, and joins as of a stored time.

A join with a view as of a stored time gets the time as a term of its ON, so that it is resolved as
any column.
"""

from sqlglot import exp

from streamhouse.errors import SqlError
from streamhouse.sql import functions, node_errors
from streamhouse.sql.plan import Resolver
from streamhouse.sql.resolution import columns as names
from streamhouse.sql.text import Script

VERSIONED = (
    "in a continuous query a table with a PRIMARY KEY and a WATERMARK, in any query a view that "
    "has the newest row of each key by ROW_NUMBER over a table that only grows"
)
"""What can be joined as of a stored time, for errors."""
JOINED_AS_OF = "__joined_as_of"
"""The placeholder of the term: a call with the time."""


def mark(script: Script, tree: exp.Expr, resolver: Resolver) -> None:
    """Let joins with the queries of views as of a stored time have a term of ON with this time.

    Raises `UnsupportedSqlError` for views as of any other time.
    """
    for view in list(tree.find_all(exp.Subquery)):
        version = view.args.get("version")
        if version is None:
            continue
        time, join = version.expression, view.parent
        if is_processing_time(tree, time.name, resolver):
            raise not_as_of(script, view, view.alias)
        on = join.args.get("on") if isinstance(join, exp.Join) else None
        if not isinstance(join, exp.Join) or on is None or join.side not in ("", "LEFT"):
            message = (
                "a view FOR SYSTEM_TIME AS OF a column is joined by JOIN or LEFT JOIN with ON; "
                "write the equalities of its keys there"
            )
            raise node_errors.unsupported(script, view, message)
        view.set("version", None)
        term = exp.Anonymous(this=JOINED_AS_OF, expressions=[time.copy()])
        join.set("on", exp.and_(on, term, copy=False))


def not_as_of(script: Script, view: exp.Expr, name: str) -> SqlError:
    """The error of a view as of a time, unless that is a stored one."""
    message = (
        f"'{name}' is a view, which takes no AS OF and cannot be looked up; name the table that it "
        "reads"
    )
    return node_errors.unsupported(script, view, message)


def is_processing_time(tree: exp.Expr, name: str, resolver: Resolver) -> bool:
    """Whether a column of this name is computed as PROCTIME(), by a query or by its table."""
    for alias in tree.find_all(exp.Alias):
        if alias.alias == name:
            if functions.current_time_name(alias.this) == "PROCTIME":
                return True
            other = alias.this.name if isinstance(alias.this, exp.Column) else name
            if other != name and is_processing_time(tree, other, resolver):
                return True
    for table in names.leaves(tree):
        if table.name.startswith("scan_"):
            continue
        for computed in resolver.table(names.table_name(table)).computed:
            if computed.name == name:
                return "".join(computed.expression.upper().split()) == "PROCTIME()"
    return False
