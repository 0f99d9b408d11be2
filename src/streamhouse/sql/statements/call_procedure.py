"""Parses CALL: a procedure's name and its arguments, in Flink's and in Spark's syntax."""

from sqlglot.tokenizer_core import TokenType

from streamhouse.sql.parser import elements
from streamhouse.sql.parser.token_cursor import Cursor
from streamhouse.sql.syntax import Argument, ArgumentValue, Call, Statement

_NAMED = "=>"
_WORDS: dict[str, ArgumentValue] = {"TRUE": True, "FALSE": False, "NULL": None}
_BRACKETS = {"(": "()", "[": "[]"}


def parse_call(cursor: Cursor) -> Statement:
    """Parse `CALL [catalog.]sys.procedure(…)`; raises `SqlError` with the position of a mistake."""
    cursor.expect("CALL")
    start = cursor.offset
    name = elements.dotted_name(cursor, "the procedure's name")
    if len(name) < 2 or name[-2].lower() != "sys":
        message = f"procedures are in the database 'sys'; write CALL sys.{name[-1]}(…)"
        raise cursor.error(message, start)
    arguments = _arguments(cursor)
    cursor.end()
    return Call(*cursor.place, name[-1], arguments, name[0] if len(name) == 3 else None)


def _arguments(cursor: Cursor) -> tuple[Argument, ...]:
    arguments: list[Argument] = []

    def add() -> None:
        start, argument = cursor.offset, _argument(cursor)
        if argument.name is None and arguments and arguments[-1].name is not None:
            raise cursor.script.error(
                "an argument without a name must come before the named ones", start
            )
        if argument.name is not None and argument.name in (given.name for given in arguments):
            raise cursor.script.error(f"argument '{argument.name}' is given twice", start)
        arguments.append(argument)

    cursor.wrapped(add, empty=True)
    return tuple(arguments)


def _argument(cursor: Cursor) -> Argument:
    if cursor.peek(1) == "=":
        cursor.take()
        cursor.fail("write name => value")
    if cursor.peek(1) != _NAMED:
        return Argument(None, _value(cursor))
    name = cursor.identifier("an argument's name")
    cursor.expect(_NAMED)
    return Argument(name, _value(cursor))


def _value(cursor: Cursor) -> ArgumentValue:
    if cursor.at_kind(TokenType.STRING):
        return cursor.take().text
    if cursor.accept("-"):
        return -_number(cursor)
    if cursor.at_kind(TokenType.NUMBER):
        return _number(cursor)
    word = cursor.peek()
    if word in _WORDS:
        cursor.take()
        return _WORDS[word]
    if cursor.accept("CAST"):
        return _cast(cursor)
    if cursor.accept("TIMESTAMP") or cursor.accept("DATE"):
        return cursor.string("a point in time")
    if cursor.accept("ARRAY"):
        return tuple(_list(cursor))
    if cursor.accept("MAP"):
        return _map(cursor)
    cursor.fail("expected a literal: a 'string', a number, TRUE, FALSE or NULL")


def _number(cursor: Cursor) -> int | float:
    if not cursor.at_kind(TokenType.NUMBER):
        cursor.fail("expected a number")
    text = cursor.take().text
    try:
        return int(text)
    except ValueError:
        return float(text)


def _cast(cursor: Cursor) -> ArgumentValue:
    """`CAST(10 AS BIGINT)`, as Flink requires it; the procedure's parameter decides the type."""
    cursor.expect("(")
    value = _value(cursor)
    cursor.expect("AS")
    if not cursor.until(")"):
        cursor.fail("expected a type")
    cursor.expect(")")
    return value


def _list(cursor: Cursor) -> list[ArgumentValue]:
    brackets = _BRACKETS.get(cursor.peek())
    if brackets is None:
        cursor.fail("expected [ or (")
    return cursor.wrapped(lambda: _value(cursor), brackets, empty=True)


def _map(cursor: Cursor) -> dict[str, str]:
    start = cursor.offset
    items = [str(item) for item in _list(cursor)]
    if len(items) % 2:
        raise cursor.script.error("MAP takes pairs: MAP['key', 'value', …]", start)
    return dict(zip(items[::2], items[1::2], strict=True))
