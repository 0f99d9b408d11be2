"""Parses queries, expressions and conditions of a script into sqlglot's trees."""

from collections.abc import Callable
from typing import Any

from sqlglot import exp
from sqlglot.errors import ErrorLevel, TokenError
from sqlglot.tokenizer_core import Token, TokenType

from streamhouse.errors import SqlError, UnsupportedSqlError
from streamhouse.sql.nesting_depth import TOO_DEEP, allow_depth, balanced
from streamhouse.sql.parser import group_windows, matched_rows
from streamhouse.sql.parser.dialect import Flink
from streamhouse.sql.parser.strict_parser import FlinkParseError
from streamhouse.sql.parser.syntax_errors import check_supported, sql_error
from streamhouse.sql.text import Script

_AFTER_LIST = (
    TokenType.FROM,
    TokenType.GROUP_BY,
    TokenType.ORDER_BY,
    TokenType.R_PAREN,
    TokenType.WHERE,
)
_AFTER_MINUS = (
    TokenType.ALL,
    TokenType.DISTINCT,
    TokenType.SELECT,
    TokenType.VALUES,
    TokenType.WITH,
)
_PARSER_FAILURES = (AssertionError, AttributeError, IndexError, KeyError, TypeError, ValueError)


def lex(script: Script, start: int = 0, end: int | None = None) -> list[Token]:
    """All tokens of a script, or of a part of it; a hint block is one token. Raises `SqlError`."""
    stop = len(script.text) if end is None else end
    tokens: list[Token] = []
    for hint in script.hints(start, stop):
        tokens += [*_without_hints(script, start, hint.start), hint]
        start = hint.end + 1
    return tokens + _without_hints(script, start, stop)


def _without_hints(script: Script, start: int, end: int) -> list[Token]:
    """Tokens of a part without hints, with their offsets in the script."""
    tokenizer: Any = Flink.Tokenizer(dialect=Flink())
    try:
        tokens: list[Token] = tokenizer.tokenize(script.text[start:end])
    except TokenError:
        message = "the text cannot be parsed; a number or a quote in it is incomplete"
        raise SqlError(message) from None
    for token in tokens:
        token.start += start
        token.end += start
        token.comments = []
    return tokens


def parse_tokens(
    script: Script, tokens: list[Token], method: Callable[[Any], exp.Expr | None] | None = None
) -> exp.Expr:
    """Parse tokens as a query or expression; raises `SqlError` with its position.

    `method` is a method of the parser, for text that must be of one kind, such as a condition.
    """
    _check_commas(script, tokens)
    tokens = list(map(_set_operator, tokens, tokens[1:] + tokens[-1:], tokens[2:] + [None] * 2))
    allow_depth()
    flink = Flink.Parser(dialect=Flink(), error_level=ErrorLevel.IMMEDIATE)
    flink.script = script
    try:
        if method is None:
            tree = flink.parse(tokens, script.text)
        else:
            tree = flink._parse(method, tokens, script.text)
    except FlinkParseError as error:
        raise sql_error(script, tokens, error) from None
    except RecursionError:
        raise script.error_in(tokens, TOO_DEEP) from None
    except _PARSER_FAILURES:
        # sqlglot itself fails with these on some texts that are not SQL.
        message = "this cannot be parsed; rewrite it, or split it into several statements"
        raise script.error_in(tokens, message) from None
    if len(tree) != 1 or tree[0] is None:
        raise script.error_in(tokens, "a query is expected here")
    query = balanced(tree[0])
    group_windows.rewrite(script, query)
    matched_rows.check_calls(script, query)
    check_supported(script, query, tokens)
    if any(not select.expressions for select in query.find_all(exp.Select)):
        raise script.error_in(tokens[:1], "SELECT needs at least one column")
    alone = (each for each in query.find_all(exp.Select) if not each.args.get("from_"))
    items = (item for select in alone for item in select.expressions)
    if any(item.is_star and not isinstance(item, exp.Subquery) for item in items):
        raise script.error_in(tokens[:1], "SELECT * needs a FROM")
    return query


def _set_operator(token: Token, after: Token, second: Token | None) -> Token:
    """EXCEPT for MINUS, its name in other systems, before a query; any other token as it is."""
    if after.token_type == TokenType.L_PAREN and second is not None:
        after = second
    if token.token_type != TokenType.VAR or token.text.upper() != "MINUS":
        return token
    if after.token_type not in _AFTER_MINUS:
        return token
    return Token(TokenType.EXCEPT, token.text, start=token.start, end=token.end)


def parse_condition(text: str) -> exp.Expr:
    """Parse one boolean expression over columns, without subqueries; raises `SqlError`."""
    script = Script(text)
    tokens = lex(script)
    if not tokens:
        raise SqlError("the condition is empty; write one such as total > 0")
    tree = parse_tokens(script, tokens, Flink.Parser._parse_disjunction)
    query = tree.find(exp.Query, exp.Table)
    if query is not None:
        message = "a condition cannot contain a query; compare columns with values"
        raise script.error_in(tokens, message, UnsupportedSqlError)
    return tree


def _check_commas(script: Script, tokens: list[Token]) -> None:
    """Raise for a comma with nothing after it, which the parser would skip."""
    for comma, after in zip(tokens, [*tokens[1:], None], strict=True):
        missing = after is None or after.token_type in _AFTER_LIST
        if comma.token_type == TokenType.COMMA and missing:
            raise script.error_in([comma], "an expression is expected after ','")
