"""Parses CREATE VIEW, and makes the text of its query that is stored.

The stored text has the full name of every table and names every output column. So the view does not
depend on the current database, and keeps its columns when a table gets new ones.
"""

from collections.abc import Callable
from dataclasses import dataclass

from sqlglot import exp

from streamhouse.sql.batch.bounded_query import analyze_select
from streamhouse.sql.parser import elements
from streamhouse.sql.parser.token_cursor import Cursor
from streamhouse.sql.plan import Column, Name, Resolver, ViewInfo
from streamhouse.sql.resolution import columns as names
from streamhouse.sql.secrets import edited
from streamhouse.sql.syntax import Query, Statement
from streamhouse.sql.text import of_query, ticked
from streamhouse.sql.types import NULL
from streamhouse.sql.udf.registry import declaration_of


@dataclass(frozen=True)
class CreateView(Statement):
    """CREATE [OR REPLACE] [TEMPORARY] VIEW [IF NOT EXISTS] v [(columns)] [COMMENT '…'] AS query."""

    name: Name
    columns: tuple[str, ...]
    query: Query
    comment: str | None = None
    temporary: bool = False
    if_not_exists: bool = False
    replace: bool = False


def parse_create_view(cursor: Cursor, temporary: bool, replace: bool) -> CreateView:
    """Parse the rest after the word VIEW."""
    if_not_exists = elements.if_not_exists(cursor, replace)
    name = elements.dotted_name(cursor, "the view's name")
    columns, _ = elements.view_columns(cursor, keyed=False)
    comment = cursor.string("a comment") if cursor.accept("COMMENT") else None
    cursor.refuse("view")
    cursor.expect("AS")
    cursor.refuse("view_query")
    if cursor.peek() not in ("SELECT", "WITH", "("):
        cursor.fail("expected SELECT or WITH")
    read = elements.query(cursor)
    return CreateView(
        *cursor.place, name, columns, read, comment, temporary, if_not_exists, replace
    )


def view_info(statement: CreateView, full: Name, resolver: Resolver, written: str) -> ViewInfo:
    """The view that a statement creates; `written` is its query with full names of all tables.

    Raises `SqlError` for a query that cannot run, or that gives another number of columns than the
    view names.
    """
    analyzed = analyze_select(statement.query, resolver, "a view must be a SELECT")
    tree = analyzed.parsed.tree
    star = not isinstance(tree, exp.Select) or any(map(names.is_star, tree.expressions))
    column_names = analyzed.named(statement.columns, f"view {'.'.join(full[-2:])}")
    if star or column_names != analyzed.output:
        items = ", ".join(
            f"{ticked(old)} AS {ticked(new)}"
            for old, new in zip(analyzed.output, column_names, strict=True)
        )
        written = f"SELECT {items}\nFROM (\n{written}\n) AS {ticked(full[-1])}"
    types = ["STRING" if kind == NULL else kind for kind in analyzed.types]
    columns = tuple(Column(name, kind) for name, kind in zip(column_names, types, strict=True))
    return ViewInfo(
        full, columns, written, statement.comment, statement.temporary,
        statement.query.functions if statement.temporary else {},
    )  # fmt: skip


def check_permanent(statement: CreateView) -> None:
    """Raise `UnsupportedSqlError` for a view that is not temporary and calls a Python function."""
    parsed = names.parse_query(statement.query)
    for node in parsed.tree.find_all(exp.Anonymous):
        declaration = declaration_of(node)
        if declaration is not None and not statement.temporary:
            message = (
                f"a view is stored, but function '{declaration.name}' belongs only to the script; "
            )
            raise parsed.script.unsupported(node, message + "write CREATE TEMPORARY VIEW")


def with_full_names(query: Query, full: Callable[[Name], Name]) -> str:
    """The query's text with each table's name replaced by what `full` returns for it.

    A table of another name keeps its former one as alias, if columns are qualified by it.
    """
    script = of_query(query)
    base, edits = len(script.text) - len(query.text), set[tuple[int, int, str]]()
    tree = names.parse_query(query).tree
    qualifiers = {column.table for column in tree.find_all(exp.Column)}
    for table in names.leaves(tree):
        parts = [part.meta for part in table.parts if "start" in part.meta]
        if isinstance(table.this, exp.Identifier) and parts:
            name = full(names.table_name(table))
            new = ".".join(map(ticked, name))
            renamed = name[-1] != table.name and not (table.alias or table.args.get("version"))
            if renamed and table.name in qualifiers:
                new += f" AS {ticked(table.name)}"
            edits.add((parts[0]["start"] - base, parts[-1]["end"] + 1 - base, new))
    return edited(query.text, sorted(edits))


def create_text(view: ViewInfo) -> str:
    """The CREATE VIEW statement of a view."""
    columns = ", ".join(ticked(column.name) for column in view.columns)
    comment = ""
    if view.comment is not None:
        comment = " COMMENT '" + view.comment.replace("'", "''") + "'"
    word = "TEMPORARY VIEW" if view.temporary else "VIEW"
    name = ".".join(ticked(part) for part in view.name[-2:])
    return f"CREATE {word} {name} ({columns}){comment} AS\n{view.query}"
