"""Parses CREATE FUNCTION and DROP FUNCTION, for Python functions (decision 339).

A script can call a function from its CREATE to its DROP, or to the end of the script. No catalog
stores it.
"""

import re

from sqlglot.tokenizer_core import TokenType

from streamhouse.close_matches import nearest
from streamhouse.sql.functions import supported
from streamhouse.sql.parser import elements, query_parser
from streamhouse.sql.parser.dialect import Flink
from streamhouse.sql.parser.token_cursor import ADVICE, Cursor
from streamhouse.sql.syntax import CreateFunction, Drop, Statement
from streamhouse.sql.text import Script
from streamhouse.sql.udf.function import Declaration, Declarations

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TARGET = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)+")


def parse_create_function(cursor: Cursor, temporary: bool, start: int) -> CreateFunction:
    """Parse the rest after CREATE [TEMPORARY]; `start` is the offset of the statement."""
    system = temporary and cursor.accept("SYSTEM")
    cursor.expect("FUNCTION")
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    at = cursor.offset
    name = _name(cursor, system)
    _check_free(cursor, name, at)
    exists = name in cursor.script.functions
    if exists and not if_not_exists:
        raise cursor.error(f"function '{name}' already exists; DROP it or write IF NOT EXISTS", at)
    cursor.expect("AS")
    target = cursor.string("the function, as 'module.function',")
    written = cursor.previous
    if not cursor.accept("LANGUAGE"):
        cursor.refuse("language")
        cursor.index = len(cursor.tokens)
        cursor.unsupported(ADVICE["language"]["JAVA"], start)
    cursor.refuse("language")
    cursor.one_of("PYTHON")
    cursor.refuse("function")
    cursor.end()
    if not _TARGET.fullmatch(target):
        message = f"'{target}' is not the path of a function; write 'module.function'"
        raise cursor.script.error_in([written], message)
    return CreateFunction(
        *cursor.place, Declaration(name, target), not temporary, exists and if_not_exists
    )


def parse_drop_function(cursor: Cursor, temporary: bool) -> Drop:
    """Parse the rest after DROP [TEMPORARY]."""
    system = temporary and cursor.accept("SYSTEM")
    cursor.expect("FUNCTION")
    if_exists = cursor.accept("IF", "EXISTS")
    at = cursor.offset
    name = _name(cursor, system)
    declared = cursor.script.functions
    if name not in declared and not if_exists:
        hint = nearest(name, declared) if declared else "the script has created none"
        if name.upper() in supported.known():
            hint = "it is built in and cannot be dropped"
        raise cursor.error(f"there is no Python function '{name}'; {hint}", at)
    cursor.end()
    return Drop(*cursor.place, "FUNCTION", (name,), if_exists, temporary)


def declared_after(declared: Declarations, statement: Statement) -> Declarations:
    """The functions that statements after this one may call."""
    match statement:
        case CreateFunction(declaration=declaration):
            return {**declared, declaration.name: declared.get(declaration.name, declaration)}
        case Drop(kind="FUNCTION", name=(name,)):
            return {key: declaration for key, declaration in declared.items() if key != name}
    return declared


def _name(cursor: Cursor, system: bool) -> str:
    """The name in lower case, without catalog and database."""
    start = cursor.offset
    parts = elements.dotted_name(cursor, "the function's name")
    if system and len(parts) > 1:
        raise cursor.error("the name of a system function has no database", start)
    if not _NAME.fullmatch(parts[-1]):
        message = f"'{parts[-1]}' is not a valid function name; use letters, digits and _"
        raise cursor.error(message, start)
    return parts[-1].lower()


def _check_free(cursor: Cursor, name: str, start: int) -> None:
    """Raise for the name of a built-in function, and for a keyword of SQL."""
    upper = name.upper()
    parser = Flink.Parser
    built_in = upper in supported.known() or upper in parser.FUNCTION_PARSERS
    if built_in or upper in supported.WINDOW_TABLES:
        message = f"{upper} is a built-in function, which a Python function cannot replace; "
        raise cursor.error(message + "choose another name", start)
    (token, *_) = query_parser.lex(Script(upper))
    if token.token_type != TokenType.VAR:
        message = f"{upper} is a SQL keyword; choose another name for the function"
        raise cursor.error(message, start)
