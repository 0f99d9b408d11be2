"""Parses a script into a list of statements."""

import re
from collections.abc import Callable

from sqlglot.tokenizer_core import Token, TokenType

from streamhouse.sql.batch.dml_syntax import parse_dml, parse_truncate
from streamhouse.sql.batch.literal_insert import parse_first_cells
from streamhouse.sql.parser import elements, hints, literal_reader, query_parser
from streamhouse.sql.parser.token_cursor import ADVICE, Cursor
from streamhouse.sql.statements.alter_table import parse_alter
from streamhouse.sql.statements.call_procedure import parse_call
from streamhouse.sql.statements.create_function import (
    declared_after,
    parse_create_function,
    parse_drop_function,
)
from streamhouse.sql.statements.create_table import parse_create_table
from streamhouse.sql.statements.create_view import parse_create_view
from streamhouse.sql.syntax import (
    CreateCatalog,
    CreateDatabase,
    CreateTable,
    Describe,
    Drop,
    Explain,
    Insert,
    Query,
    ResetOption,
    Select,
    SetOption,
    Show,
    Statement,
    StatementSet,
    UseCatalog,
    UseDatabase,
)
from streamhouse.sql.text import Script
from streamhouse.sql.udf.function import NONE, Declarations
from streamhouse.sql.views.statement import parse_create_materialized_view


def parse_script(text: str, declared: Declarations = NONE) -> list[Statement]:
    """The statements of a script; `SqlError` and `UnsupportedSqlError` have line and column.

    `declared` are the Python functions that earlier texts have declared (see `declared_after`).
    """
    script = Script(text, functions=declared)
    statements: list[Statement] = []
    for tokens in _split(script, query_parser.lex(script)):
        statement = _statement(Cursor(script, tokens))
        statements.append(statement)
        if isinstance(statement, CreateTable) and statement.query is not None:
            at, target, query = statement.position, statement.name, statement.query
            statements.append(Insert(at, statement.text, target, (), query, fills=True))
        functions = declared_after(script.functions, statement)
        if functions is not script.functions:
            script = Script(text, functions=functions)
    return statements


_STATEMENT_SET = re.compile(
    r"BEGIN STATEMENT SET\b|(EXECUTE|EXPLAIN) (\w+ )*?STATEMENT SET BEGIN\b(?! END)"
)
"""The first words of a statement set, which semicolons do not end."""


def _split(script: Script, tokens: list[Token]) -> list[list[Token]]:
    """The tokens of each statement; a statement set is one statement."""
    parts: list[list[Token]] = [[]]
    for token in tokens:
        parts[-1].append(token)
        if token.token_type == TokenType.SEMICOLON:
            parts.append([])
    statements: list[list[Token]] = []
    inside = False
    for part in parts:
        words = " ".join(token.text.upper() for token in part[:8])
        if inside:
            statements[-1] += part
            inside = not words.startswith("END")
        else:
            statements.append(part)
            inside = _STATEMENT_SET.match(words) is not None
    if inside:
        first = next(tokens for tokens in reversed(statements) if tokens)
        message = "the statement set is never closed; write END; after its last INSERT"
        raise script.error(message, first[0].start, first[min(2, len(first) - 1)].end + 1)
    for tokens in statements:
        if tokens and tokens[-1].token_type == TokenType.SEMICOLON:
            del tokens[-1]
    return [tokens for tokens in statements if tokens]


def _statement(cursor: Cursor) -> Statement:
    word = cursor.peek()
    cursor.refuse("statements")
    parse = _select if word == "(" else _STATEMENTS.get(word)
    if parse is None:
        cursor.unknown_keyword((*_STATEMENTS, *ADVICE["statements"]))
    return parse(cursor)


def _create(cursor: Cursor) -> Statement:
    start = cursor.offset
    cursor.expect("CREATE")
    if cursor.accept("CATALOG"):
        if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
        name = cursor.identifier("the catalog's name")
        cursor.refuse("catalog")
        cursor.expect("WITH")
        options = elements.option_list(cursor)
        cursor.end()
        return CreateCatalog(*cursor.place, name, options, if_not_exists)
    if cursor.accept("DATABASE"):
        if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
        full = elements.dotted_name(cursor, "the database's name")
        comment = cursor.string("a comment") if cursor.accept("COMMENT") else None
        cursor.refuse("database")
        cursor.end("COMMENT or the end of the statement (;)")
        return CreateDatabase(*cursor.place, full, if_not_exists, comment)
    replace = cursor.accept("OR", "REPLACE") or (
        cursor.at("OR", "ALTER", "MATERIALIZED") and cursor.accept("OR", "ALTER")
    )
    if cursor.accept("MATERIALIZED"):
        return parse_create_materialized_view(cursor, replace)
    temporary = cursor.accept("TEMPORARY")
    if replace and not cursor.at("VIEW"):
        cursor.unsupported("CREATE OR REPLACE is of views; use DROP and CREATE", start)
    if cursor.accept("TABLE"):
        return parse_create_table(cursor, temporary)
    if cursor.at("FUNCTION") or (temporary and cursor.at("SYSTEM", "FUNCTION")):
        return parse_create_function(cursor, temporary, start)
    if cursor.accept("VIEW"):
        return parse_create_view(cursor, temporary, replace)
    if cursor.at("OR"):
        words = f"CREATE OR {cursor.peek(1)}"
        cursor.unsupported(f"{words} is not supported; use DROP and CREATE", start)
    _refuse_object(cursor, start)
    cursor.unknown_keyword(("TABLE", "TEMPORARY", "CATALOG", "DATABASE", "VIEW", "FUNCTION"))


def _refuse_object(cursor: Cursor, start: int) -> None:
    """Raise if CREATE, ALTER or DROP is followed by a known object that is not supported."""
    words = [cursor.peek(ahead) for ahead in range(3)]
    while words and words[0] in ("TEMPORARY", "SYSTEM", "UNIQUE", "EXTERNAL"):
        del words[0]
    if words and words[0] in ADVICE["objects"]:
        cursor.unsupported(ADVICE["objects"][words[0]], start)


def _alter(cursor: Cursor) -> Statement:
    cursor.expect("ALTER")
    _refuse_object(cursor, cursor.offset)
    return parse_alter(cursor)


def _drop(cursor: Cursor) -> Statement:
    start = cursor.offset
    cursor.expect("DROP")
    temporary = cursor.accept("TEMPORARY")
    if cursor.at("FUNCTION") or (temporary and cursor.at("SYSTEM", "FUNCTION")):
        return parse_drop_function(cursor, temporary)
    materialized = cursor.accept("MATERIALIZED")
    if not materialized:
        _refuse_object(cursor, start)
    kind = cursor.peek()
    if kind not in ("TABLE", "DATABASE", "CATALOG", "VIEW"):
        cursor.unknown_keyword(("TABLE", "DATABASE", "CATALOG", "VIEW", "FUNCTION"))
    cursor.take()
    if_exists = cursor.accept("IF", "EXISTS")
    name = elements.dotted_name(cursor, f"the {kind.lower()}'s name")
    if materialized:
        cursor.end()
        return Drop(*cursor.place, "MATERIALIZED VIEW", name, if_exists)
    if kind == "DATABASE":
        cursor.refuse("dropped_database")
        cursor.accept("RESTRICT")
    cursor.end()
    return Drop(*cursor.place, kind, name, if_exists, temporary)


def _use(cursor: Cursor) -> Statement:
    cursor.expect("USE")
    cursor.refuse("used")
    if cursor.at("CATALOG") and cursor.peek(1) != ".":
        cursor.take()
        catalog = cursor.identifier("the catalog's name")
        cursor.end()
        return UseCatalog(*cursor.place, catalog)
    name = elements.dotted_name(cursor, "the database's name")
    cursor.end()
    return UseDatabase(*cursor.place, name)


def _key(cursor: Cursor) -> str:
    """An option's key: a string, or words joined by dots and dashes."""
    if cursor.at_kind(TokenType.STRING):
        return cursor.take().text
    parts: list[Token] = []
    while not cursor.done and not cursor.at("="):
        parts.append(cursor.take())
    if not parts:
        cursor.fail("expected an option's key")
    key = cursor.text_of(parts)
    if any(char.isspace() for char in key):
        raise cursor.script.error(f"expected 'key' = 'value', got {key}", parts[0].start)
    return key


def _set(cursor: Cursor) -> Statement:
    cursor.expect("SET")
    if cursor.done:
        return SetOption(*cursor.place)
    key = _key(cursor)
    cursor.expect("=")
    if cursor.at_kind(TokenType.STRING):
        value = cursor.take().text
        cursor.end()
    else:
        rest = cursor.tokens[cursor.index :]
        if not rest:
            cursor.fail(f"expected the value of option '{key}'")
        value = cursor.text_of(rest)
    return SetOption(*cursor.place, key, value)


def _reset(cursor: Cursor) -> Statement:
    cursor.expect("RESET")
    key = None if cursor.done else _key(cursor)
    cursor.end()
    return ResetOption(*cursor.place, key)


_NOT_NAMES = ("SELECT", "VALUES", "WITH", "PARTITION", "(", ".")
_SHOW = ("CATALOGS", "DATABASES", "TABLES", "VIEWS", "MATERIALIZED VIEWS",
         "MATERIALIZED TABLES", "FUNCTIONS", "USER FUNCTIONS", "JOBS",
         "CURRENT CATALOG", "CURRENT DATABASE", "CREATE TABLE", "CREATE VIEW",
         "CREATE MATERIALIZED VIEW", "CREATE MATERIALIZED TABLE", "COLUMNS")  # fmt: skip


def _show(cursor: Cursor) -> Statement:
    cursor.expect("SHOW")
    cursor.refuse("shown")
    for kind in _SHOW:
        if cursor.accept(*kind.split()):
            break
    else:
        cursor.unknown_keyword(_SHOW)
    if kind.startswith("CREATE"):
        name = elements.dotted_name(cursor, f"the {kind.split()[-1].lower()}'s name")
    elif kind == "COLUMNS":
        if not cursor.accept("IN"):
            cursor.expect("FROM")
        name = elements.dotted_name(cursor, "the table's name")
    elif cursor.accept("IN") or cursor.accept("FROM"):
        if not kind.endswith(("TABLES", "VIEWS")):
            cursor.unsupported(f"SHOW {kind} takes no name; leave it out")
        name = elements.dotted_name(cursor, "the database's name")
    else:
        name = ()
    listed = kind.endswith("S")
    unlike = listed and cursor.accept("NOT")
    like = None
    if listed and cursor.peek() in ("LIKE", "ILIKE"):
        flags = "(?is)" if cursor.take().text.upper() == "ILIKE" else "(?s)"
        pattern = re.escape(cursor.string("a pattern such as 'a%'"))
        like = flags + pattern.replace("%", ".*").replace("_", ".")
    elif unlike:
        cursor.fail("expected LIKE")
    cursor.end("LIKE or the end of the statement (;)" if listed else "the end of the statement (;)")
    return Show(*cursor.place, kind, name, like, unlike)


def _describe(cursor: Cursor) -> Statement:
    cursor.take()
    # Without a name after it, a known word is the name of a table.
    named = cursor.peek(1) or cursor.index + 1 < len(cursor.tokens)
    if named and cursor.peek(1) != ".":
        cursor.refuse("described")
    for words in (("MATERIALIZED", "VIEW"), ("MATERIALIZED", "TABLE"), ("TABLE",)):
        if cursor.accept(*words):
            break
    name = elements.dotted_name(cursor, "the table's name")
    cursor.end()
    return Describe(*cursor.place, name)


def _explain(cursor: Cursor) -> Statement:
    cursor.expect("EXPLAIN")
    if not cursor.accept("PLAN", "FOR"):
        cursor.refuse("explained")
    words = ("SELECT", "WITH", "INSERT", "VALUES", "EXECUTE", "STATEMENT")
    views = (("CREATE", "MATERIALIZED"), ("CREATE", "OR", "REPLACE"), ("ALTER", "MATERIALIZED"))
    view = any(cursor.at(*words) for words in views)
    if cursor.done or (cursor.peek() not in words and not view):
        if cursor.peek() in (*_STATEMENTS, *ADVICE["statements"]):
            cursor.unsupported(
                f"EXPLAIN {cursor.peek()} is not supported; write EXPLAIN with SELECT, INSERT or a "
                "statement set"
            )
        cursor.fail("expected SELECT, WITH, VALUES or INSERT")
    part = cursor.part(cursor.tokens[cursor.index :])
    if part.at("STATEMENT"):
        inner: Statement = _statement_set(part)
    else:
        inner = _statement(part)
    return Explain(*cursor.place, inner)


def _insert(cursor: Cursor) -> Insert:
    cursor.expect("INSERT")
    overwrite = cursor.accept("OVERWRITE")
    if overwrite:
        cursor.accept("INTO")
    else:
        cursor.expect("INTO")
    if cursor.at("TABLE") and cursor.peek(1) not in _NOT_NAMES:
        # INSERT INTO TABLE t, as in Spark.
        cursor.take()
    target = elements.dotted_name(cursor, "the target table's name")
    options: dict[str, str] = {}
    while cursor.at_kind(TokenType.HINT):
        hint = cursor.take()
        options |= hints.table_options(cursor.script, hint.text, hint.start)
    partition = elements.partition_values(cursor) if cursor.accept("PARTITION") else {}
    columns: tuple[str, ...] = ()
    if cursor.at("(") and cursor.peek(1) not in ("SELECT", "WITH", "VALUES", "("):
        columns = elements.identifiers(cursor, "a column")
    if cursor.peek() not in ("SELECT", "WITH", "VALUES", "("):
        cursor.unknown_keyword(("SELECT", "VALUES", "WITH"))
    query = _rows(cursor) or elements.query(cursor)
    return Insert(*cursor.place, target, columns, query, overwrite, options, partition)


def _rows(cursor: Cursor) -> Query | None:
    """A long list of VALUES as a query; None for anything else."""
    tokens, script = cursor.rest(), cursor.script
    if tokens[0].token_type != TokenType.VALUES or len(tokens) < literal_reader.LEAST_TOKENS:
        return None
    rows = literal_reader.read(tokens, tokens[0].start)
    if rows is None:
        return None
    parse_first_cells(script, tokens[0].start, rows)
    return elements.query_of(cursor, tokens, rows)


def _select(cursor: Cursor) -> Statement:
    return Select(*cursor.place, elements.query(cursor))


def _statement_set(cursor: Cursor) -> Statement:
    if cursor.accept("EXECUTE") or cursor.at("STATEMENT"):
        if cursor.peek() in ("INSERT", "SELECT", "WITH", "VALUES"):
            return _statement(cursor.part(cursor.tokens[cursor.index :]))
        cursor.refuse("executed")
        cursor.expect("STATEMENT", "SET")
        cursor.expect("BEGIN")
    else:
        cursor.expect("BEGIN", "STATEMENT", "SET")
        cursor.accept(";")
    inserts = []
    while not cursor.at("END"):
        start = cursor.index
        while not cursor.at(";") and not cursor.done:
            cursor.index += 1
        part = cursor.part(cursor.tokens[start : cursor.index])
        if not part.at("INSERT"):
            cursor.index = start
            cursor.fail("a statement set holds INSERT statements and ends with END")
        inserts.append(_insert(part))
        cursor.expect(";")
    cursor.expect("END")
    cursor.end()
    if not inserts:
        raise cursor.script.error("the statement set is empty", cursor.tokens[0].start)
    return StatementSet(*cursor.place, tuple(inserts))


_STATEMENTS: dict[str, Callable[[Cursor], Statement]] = {
    "CREATE": _create,
    "DROP": _drop,
    "ALTER": _alter,
    "USE": _use,
    "SET": _set,
    "RESET": _reset,
    "SHOW": _show,
    "DESCRIBE": _describe,
    "DESC": _describe,
    "CALL": parse_call,
    "EXPLAIN": _explain,
    "INSERT": _insert,
    "MERGE": parse_dml,
    "UPDATE": parse_dml,
    "DELETE": parse_dml,
    "TRUNCATE": parse_truncate,
    "SELECT": _select,
    "WITH": _select,
    "VALUES": _select,
    "BEGIN": _statement_set,
    "EXECUTE": _statement_set,
}
