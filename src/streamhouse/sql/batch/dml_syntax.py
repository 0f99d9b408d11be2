"""Parses MERGE, UPDATE, DELETE and TRUNCATE: clauses from tokens, expressions by sqlglot."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from streamhouse.sql.expressions import lowering
from streamhouse.sql.parser import elements, query_parser
from streamhouse.sql.parser.dialect import Flink
from streamhouse.sql.parser.token_cursor import Cursor
from streamhouse.sql.syntax import DmlStatement, Query, Truncate
from streamhouse.sql.text import Script, of_query

MATCHED, MISSING, ORPHAN = "WHEN MATCHED", "WHEN NOT MATCHED", "WHEN NOT MATCHED BY SOURCE"


@dataclass
class Clause:
    """One WHEN clause of MERGE, or the whole of an UPDATE or DELETE.

    `action` is `insert`, `update` or `delete`, `when` is `MATCHED`, `MISSING` or `ORPHAN`.
    `assignments` are the values of SET or VALUES in order, each with the token of its column (with
    empty text for an INSERT without a column list). `star`: `UPDATE SET *` or `INSERT *`.
    """

    action: str
    when: str
    place: Token
    condition: exp.Expr | None = None
    assignments: list[tuple[Token, exp.Expr]] = field(default_factory=list)
    star: bool = False


@dataclass
class Parts:
    """The parts of a statement; an UPDATE or DELETE has no `source` and no `on`."""

    target: exp.Table
    source: exp.Expr | None
    on: exp.Expr | None
    clauses: list[Clause]


def parse_dml(cursor: Cursor) -> DmlStatement:
    """Read a MERGE, UPDATE or DELETE and check its syntax; raises `SqlError`."""
    query = elements.query_of(cursor, cursor.rest())
    name = tuple(part.name for part in _parts(cursor).target.parts)
    return DmlStatement(*cursor.place, name, query)


def parse_truncate(cursor: Cursor) -> Truncate:
    cursor.expect("TRUNCATE", "TABLE")
    name = elements.dotted_name(cursor, "the table's name")
    cursor.end()
    return Truncate(*cursor.place, name)


def parts_of(query: Query) -> tuple[Script, Parts]:
    """The parts of a statement, and the script to which the positions of its nodes refer."""
    script = of_query(query)
    tokens = query_parser.lex(script, len(script.text) - len(query.text))
    return script, _parts(Cursor(script, tokens))


def _parts(cursor: Cursor) -> Parts:
    if cursor.accept("MERGE"):
        return _merge(cursor)
    action = cursor.take().text.lower()
    if action == "delete":
        cursor.expect("FROM")
    target = _target(cursor, _until(cursor, "SET" if action == "update" else "WHERE"))
    clause = Clause(action, MATCHED, cursor.tokens[0])
    if action == "update":
        cursor.expect("SET")
        _assignments(cursor, clause, "WHERE")
    if cursor.accept("WHERE"):
        clause.condition = _expression(cursor, _until(cursor))
    cursor.end()
    return Parts(target, None, None, [clause])


def _merge(cursor: Cursor) -> Parts:
    cursor.expect("INTO")
    target = _target(cursor, _until(cursor, "USING"))
    cursor.expect("USING")
    source = _from_item(cursor, _until(cursor, "ON"))
    cursor.expect("ON")
    on = _expression(cursor, _until(cursor, "WHEN"))
    clauses: list[Clause] = []
    if not cursor.at("WHEN"):
        cursor.fail("expected WHEN MATCHED or WHEN NOT MATCHED")
    while cursor.at("WHEN"):
        clauses.append(_clause(cursor))
    cursor.end("WHEN or the end of the statement (;)")
    _check_reachable(cursor, clauses)
    return Parts(target, source, on, clauses)


def _clause(cursor: Cursor) -> Clause:
    when_token = cursor.take()
    when = MISSING if cursor.accept("NOT") else MATCHED
    cursor.expect("MATCHED")
    if when == MISSING and cursor.accept("BY"):
        if not cursor.accept("TARGET"):
            cursor.expect("SOURCE")
            when = ORPHAN
    clause = Clause("", when, when_token)
    if cursor.accept("AND"):
        clause.condition = _expression(cursor, _until(cursor, "THEN"))
    cursor.expect("THEN")
    words = ("INSERT",) if when == MISSING else ("UPDATE", "DELETE")
    if cursor.peek() not in words:
        cursor.fail(f"expected {' or '.join(words)} after {when} … THEN")
    clause.action = cursor.take().text.lower()
    if clause.action == "update":
        cursor.expect("SET")
        if when == MATCHED and cursor.accept("*"):
            clause.star = True
        else:
            _assignments(cursor, clause, "WHEN")
    elif clause.action == "insert":
        _insert(cursor, clause)
    return clause


def _assignments(cursor: Cursor, clause: Clause, end: str) -> None:
    """Read `a = …, t.b = …` into the clause."""

    def assign() -> None:
        start = cursor.offset
        elements.dotted_name(cursor, "a column")
        name = cursor.previous
        if any(name.text == other.text for other, _ in clause.assignments):
            raise cursor.script.error(f"column '{name.text}' is set twice", start)
        cursor.expect("=")
        clause.assignments.append((name, _expression(cursor, _until(cursor, ",", end))))

    cursor.listed(assign)


def _insert(cursor: Cursor, clause: Clause) -> None:
    """Read `*` or `[(columns)] VALUES (…)`; without columns their tokens have no text."""
    if cursor.accept("*"):
        clause.star = True
        return

    def column() -> Token:
        cursor.identifier("a column")
        return cursor.previous

    start = cursor.offset
    columns = cursor.wrapped(column) if cursor.at("(") else []
    elements.check_distinct(cursor, [token.text for token in columns], start)
    cursor.expect("VALUES")
    start = cursor.offset
    values = cursor.wrapped(lambda: _expression(cursor, _until(cursor, ",")))
    if columns and len(columns) != len(values):
        raise cursor.script.error(
            f"{len(columns)} column(s) are named, but {len(values)} value(s) are given", start
        )
    columns = columns or [Token(TokenType.VAR, "", start=start, end=start)] * len(values)
    clause.assignments = list(zip(columns, values, strict=True))


def _check_reachable(cursor: Cursor, clauses: list[Clause]) -> None:
    always = set[str]()
    for clause in clauses:
        if clause.when in always:
            raise cursor.script.error(
                f"this clause is never reached: a {clause.when} without AND precedes it",
                clause.place.start,
            )
        if clause.condition is None:
            always.add(clause.when)


def _until(cursor: Cursor, *ends: str) -> list[Token]:
    """The tokens up to one of the words, at least one."""
    tokens = cursor.until(*ends)
    if not tokens:
        cursor.fail("expected an expression or a name")
    return tokens


def _expression(cursor: Cursor, tokens: list[Token]) -> exp.Expr:
    """The tree of one expression."""
    tree = _parsed(cursor, tokens, Flink.Parser._parse_disjunction)
    if tree.is_star and not isinstance(tree, exp.Subquery):
        raise cursor.script.error_at(tree, "expected an expression, not *")
    for node in tree.find_all(exp.AggFunc):
        if node.find_ancestor(exp.Select) is None:
            message = "write the aggregate as a subquery: (SELECT SUM(…) FROM …)"
            raise cursor.script.error_at(node, message)
    return tree


def _from_item(cursor: Cursor, tokens: list[Token]) -> exp.Expr:
    """The tree of a table or a subquery with its alias."""
    item = _parsed(cursor, tokens, Flink.Parser._parse_table)
    if item.args.get("joins") or item.args.get("laterals"):
        raise cursor.script.error_in(tokens, "expected one table or one (SELECT …)")
    return item


def _parsed(
    cursor: Cursor, tokens: list[Token], method: Callable[[Any], exp.Expr | None]
) -> exp.Expr:
    tree = query_parser.parse_tokens(cursor.script, cursor.lexed(tokens), method)
    return lowering.simplify(cursor.script, tree)


def _target(cursor: Cursor, tokens: list[Token]) -> exp.Table:
    item = _from_item(cursor, tokens)
    if not isinstance(item, exp.Table) or item.args.get("version"):
        raise cursor.script.error_in(tokens, "expected the name of the table to change")
    return item
