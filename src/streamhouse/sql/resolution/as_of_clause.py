"""Time travel in queries: which snapshot, tag or time a clause or an option names.

`FOR SYSTEM_TIME AS OF` a processing time reads the newest rows. A join with a view as of a stored
time gets the time as a term of its ON, so that it is resolved as any column.
"""

import duckdb
from sqlglot import exp

from streamhouse.errors import OptionError, SqlError
from streamhouse.sql.expressions import lowering
from streamhouse.sql.expressions.binder import generate
from streamhouse.sql.expressions.sandboxed_connection import sandboxed
from streamhouse.sql.functions.expression_builders import cast, current_time_name
from streamhouse.sql.options.time_travel_options import epoch_ms, split_options
from streamhouse.sql.plan import AsOf, Resolver
from streamhouse.sql.resolution import columns as names
from streamhouse.sql.resolution.columns import Parsed
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
            raise script.unsupported(view, message)
        view.set("version", None)
        term = exp.Anonymous(this=JOINED_AS_OF, expressions=[time.copy()])
        join.set("on", exp.and_(on, term, copy=False))


def not_as_of(script: Script, view: exp.Expr, name: str) -> SqlError:
    """The error of a view as of a time, unless that is a stored one."""
    message = (
        f"'{name}' is a view, which takes no AS OF and cannot be looked up; name the table that it "
        "reads"
    )
    return script.unsupported(view, message)


def is_processing_time(tree: exp.Expr, name: str, resolver: Resolver) -> bool:
    """Whether a column of this name is computed as PROCTIME(), by a query or by its table."""
    for alias in tree.find_all(exp.Alias):
        if alias.alias == name:
            if current_time_name(alias.this) == "PROCTIME":
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


def as_of(
    parsed: Parsed, tree: exp.Expr, table: exp.Table, resolver: Resolver
) -> tuple[dict[str, str], AsOf]:
    """The other options of a table's hint, and the point in time that its hint or its clause names.

    A `branch` option changes the table's name to the branch's. Raises `SqlError` if both the hint
    and the clause name a point in time.
    """
    hinted = names.table_options(parsed.script, table)
    try:
        options, from_hint = split_options(hinted)
    except OptionError as error:
        raise parsed.script.error_at(table.meta["hints"][0], str(error)) from None
    branch = options.pop("branch", "")
    if branch:
        _rename_to_branch(table, branch)
    from_clause = _clause(parsed, tree, table, resolver)
    if from_hint and from_clause:
        raise parsed.script.error_at(
            table.args["version"], "the table's OPTIONS hint also names a version; keep one of them"
        )
    return options, from_clause or from_hint


def _rename_to_branch(table: exp.Table, branch: str) -> None:
    """Rename a table to its branch (`t$branch_b`) and keep the alias that the query uses."""
    if table.args.get("alias") is None:
        table.set("alias", exp.TableAlias(this=table.this.copy()))
    name = exp.to_identifier(f"{table.name}$branch_{branch}", quoted=True)
    name.meta.update(table.this.meta)
    table.set("this", name)


def _clause(parsed: Parsed, tree: exp.Expr, table: exp.Table, resolver: Resolver) -> AsOf:
    version = table.args.get("version")
    if version is None:
        return AsOf()
    as_of: exp.Expr | None = version.args.get("expression")
    if as_of is None:
        raise _not_constant(parsed, version)
    if as_of.find(exp.Query, exp.Table) is not None:
        message = "AS OF takes a constant time, not a query; write TIMESTAMP '…'"
        raise parsed.script.unsupported(version, message)
    if version.this == "VERSION":
        return _version(parsed, version)
    if isinstance(as_of, exp.Literal) and not as_of.is_string and as_of.name.isdigit():
        return AsOf(timestamp_ms=epoch_ms(int(as_of.name)))
    if as_of.find(exp.Column) is None:
        return AsOf(timestamp_ms=_milliseconds(parsed, version, as_of, resolver))
    if isinstance(as_of, exp.Column) and is_processing_time(tree, as_of.name, resolver):
        return AsOf()
    raise parsed.script.unsupported(
        version,
        "FOR SYSTEM_TIME AS OF takes a TIMESTAMP '…' or a column that is computed as PROCTIME(); "
        f"as of a stored time, name {VERSIONED}",
    )


def _version(parsed: Parsed, version: exp.Expr) -> AsOf:
    literal = version.expression
    if isinstance(literal, exp.Literal):
        text = str(literal.this)
        if literal.is_string and text:
            return AsOf(version=text) if text.isdigit() else AsOf(tag=text)
        if text.isdigit() and int(text):
            return AsOf(snapshot=int(text))
    message = "VERSION AS OF takes a snapshot's number or a tag's 'name'"
    raise parsed.script.error_at(version, message)


def _milliseconds(parsed: Parsed, version: exp.Expr, as_of: exp.Expr, resolver: Resolver) -> int:
    """A constant time in the session's zone in milliseconds since 1970, as DuckDB computes it."""
    try:
        moment = cast(as_of.copy(), "TIMESTAMPTZ")
        lowered = lowering.lower(parsed.script, moment, {}, bounded=True, zone=resolver.zone)
        with sandboxed() as connection:
            text = f"SELECT epoch_ms({generate(lowered)})"
            row = connection.execute(text).fetchone()
    except duckdb.Error:
        row = None
    if not row or row[0] is None:
        raise _not_constant(parsed, version)
    return int(row[0])


def _not_constant(parsed: Parsed, version: exp.Expr) -> SqlError:
    message = "AS OF needs a constant time: TIMESTAMP '…'"
    return parsed.script.error_at(version, message)
