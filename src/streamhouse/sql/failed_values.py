"""Finds the expression and the row whose value made a query fail, for error messages.

The failed query is queried again, expression by expression, for the first row on which DuckDB's
`TRY` gives null (decision 259).
"""

from collections.abc import Callable, Sequence
from contextlib import suppress

import duckdb
from sqlglot import exp, parse_one
from sqlglot.errors import SqlglotError

from streamhouse.errors import StreamhouseError
from streamhouse.sql.expressions.binder import generate
from streamhouse.sql.expressions.value_errors import readable
from streamhouse.sql.failed_expressions import Suspect, suspects
from streamhouse.sql.functions.expression_builders import call
from streamhouse.sql.select_parts import derived, replaced_columns, rows_of

_LONGEST = 80
Run = Callable[[str], Sequence[object]]
"""Returns the first row of a query, or nothing; raises DuckDB's errors."""


def located(sql: str, names: Sequence[str], keys: Sequence[int], problem: str, run: Run) -> str:
    """The readable `problem` of a failed query with its place, if that is found.

    Such as "column 'total' of the row with id = 7: 'x' is not a valid INT". `sql` is the DuckDB
    query, `names` are those of its columns, `keys` the positions of those that identify a row
    (none: the values that the expression reads do). Several rows may fail: the problem is then that
    of the row.
    """
    first = None
    with suppress(SqlglotError):
        for suspect in suspects(parse_one(sql, dialect="duckdb"), names, keys):
            found = _failure(suspect, run)
            if found is None:
                continue
            place, own = found[0], found[1] or problem
            if own == problem:
                return f"{place}: {own}"
            first = first or f"{place}: {own}"
    return first or problem


def _failure(suspect: Suspect, run: Run) -> tuple[str, str | None] | None:
    """The place of a suspect with a row that it fails for, and that row's problem, if known."""
    values, _ = _run(_rows(suspect), run)
    if not values:
        return None
    texts = [
        f"{name} = {_shown(value)}" for (name, _), value in zip(suspect.shown, values, strict=False)
    ]
    relation = "of" if "column" in suspect.place else "for"
    row = f" {relation} the {suspect.row} with {', '.join(texts)}" if texts else ""
    return suspect.place + row, _problem(suspect, run)


def _problem(suspect: Suspect, run: Run) -> str | None:
    """The message of the expression on the first row that it fails for, alone."""
    read = list({column.sql(): column for column in suspect.test.find_all(exp.Column)}.values())
    values = [exp.alias_(column.copy(), f"c{at}", quoted=True) for at, column in enumerate(read)]
    names = {column.sql(): f"c{at}" for at, column in enumerate(read)}
    test = replaced_columns(
        suspect.test, lambda column: exp.column(names[column.sql()], "failed_", quoted=True)
    )
    if not values:
        return _run(f"SELECT {generate(exp.func('HASH', test))}", run)[1]
    select = suspect.select.copy()
    select.set("expressions", values)
    where = select.args.get("where")
    conditions = [*([] if where is None else [where.this]), _fails(suspect.test)]
    select.set("where", exp.Where(this=exp.and_(*conditions, copy=False)))
    return _run(
        f"WITH failed_ AS MATERIALIZED ({generate(select.limit(1))}) "
        f"SELECT {generate(exp.func('HASH', test))} FROM failed_",
        run,
    )[1]


def _rows(suspect: Suspect) -> str:
    """The query of the first row on which a suspect fails: its `shown` values."""
    select = suspect.select.copy()
    values = [call("TRY", exp.cast(each.copy(), "VARCHAR")) for _, each in suspect.shown]
    columns = [exp.alias_(each, f"k{at}", quoted=True) for at, each in enumerate(values)]
    failed = exp.alias_(_fails(suspect.test), "failed_", quoted=True)
    select.set("expressions", [*columns, failed])
    failing = rows_of(derived(select, "rows_")).where(exp.column("failed_", quoted=True))
    return generate(failing.limit(1))


def _fails(test: exp.Expr) -> exp.Expr:
    # A hash is never null, and DuckDB does not simplify it.
    return exp.Is(this=call("TRY", exp.func("HASH", test.copy())), expression=exp.Null())


def _shown(value: object) -> str:
    text = "NULL" if value is None else str(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _run(sql: str, run: Run) -> tuple[Sequence[object], str | None]:
    """The first row of a query; or nothing, and the message if it fails because of a value."""
    try:
        return run(sql), None
    except (duckdb.BinderException, duckdb.CatalogException, duckdb.ParserException):
        return (), None
    except (duckdb.Error, RuntimeError, StreamhouseError) as error:
        return (), readable(str(error))
