"""Errors of the parser as errors of a script: what is expected, misspelt or not supported there."""

from __future__ import annotations

from sqlglot.tokenizer_core import Token, TokenType

from streamhouse.close_matches import closest
from streamhouse.errors import SqlError, UnsupportedSqlError
from streamhouse.sql.parser.strict_parser import ADVICE, FlinkParseError
from streamhouse.sql.text import Script

_CLAUSES = "FROM WHERE GROUP HAVING ORDER LIMIT JOIN LEFT INNER UNION SELECT VALUES".split()


def sql_error(script: Script, tokens: list[Token], error: FlinkParseError) -> SqlError:
    """The parser's error with its position in the script, in words for users."""
    token, message = error.token, error.message
    kind = UnsupportedSqlError if error.unsupported else SqlError
    if not token:
        message = f"the statement ends too early: {_expectation(message)}"
        return script.error(message, tokens[-1].end + 1, kind=kind)
    if error.own:
        return script.error(message, token.start, token.end + 1, kind=kind)
    explanation, misspelt = _unsupported_words(tokens, token), _misspelt(tokens, token)
    if token.token_type == TokenType.HINT:
        message = "a hint /*+ … */ is only allowed after SELECT or after a table"
    elif explanation is not None:
        (token, message), kind = explanation, UnsupportedSqlError
    elif misspelt is not None:
        token, guess = misspelt
        message = f"'{token.text}' is not a keyword; did you mean {guess}?"
    else:
        got = script.text[token.start : token.end + 1]
        message = f"'{got}' is not expected here; {_expectation(message)}"
    return script.error(message, token.start, token.end + 1, kind=kind)


def _misspelt(tokens: list[Token], token: Token) -> tuple[Token, str] | None:
    """A word at or just before the token that looks like a clause's keyword, and that keyword."""
    index = tokens.index(token) if token in tokens else 0
    for word in tokens[max(0, index - 2) : index + 1]:
        text = word.text.upper()
        if word.token_type != TokenType.VAR or len(text) < 3:
            continue
        if text in ("GROUP", "ORDER"):
            return word, f"{text} BY"
        guess = closest(text, _CLAUSES, cutoff=0.74)
        if guess and guess != text:
            return word, guess
    return None


def _expectation(message: str) -> str:
    if message.startswith("Expecting "):
        return f"expected '{message.removeprefix('Expecting ').rstrip('.')}'"
    if message.startswith("Expected "):
        return message[0].lower() + message[1:].split(" but got")[0]
    if message.startswith("Required argument"):
        return "expected an expression"
    return "expected an expression, a clause (FROM, JOIN, WHERE, GROUP BY, …) or the end"


def _unsupported_words(tokens: list[Token], token: Token) -> tuple[Token, str] | None:
    """The word at or before `token` that explains a parse error there, and its message, if any."""
    index = tokens.index(token) if token in tokens else 0
    for start in range(max(0, index - 2), index + 1):
        if start + 1 >= len(tokens):
            break
        current, following = tokens[start], tokens[start + 1]
        if current.token_type in (TokenType.IDENTIFIER, TokenType.STRING):
            continue
        if (current.text, following.text) == ("-", ">") and current.end + 1 == following.start:
            return current, ADVICE["words"]["- >"]
        # One token may hold two words, as GROUP BY does.
        words = f"{current.text.upper()} {following.text.upper().split(' ', 1)[0]}"
        if words in ADVICE["words"]:
            return current, ADVICE["words"][words]
    return None
