"""Errors of syntax: what the parser expects or what is misspelt, and what is not supported here.

Each error has a position and suggests an alternative. A parsed query is checked before DuckDB sees
it: DuckDB's parser accepts other syntax than Flink's, and its errors quote SQL that the user did
not write.
"""

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from streamhouse.close_matches import closest
from streamhouse.errors import SqlError, UnsupportedSqlError
from streamhouse.sql.functions.expression_builders import GENERATED
from streamhouse.sql.parser.strict_parser import FlinkParseError
from streamhouse.sql.parser.token_cursor import ADVICE
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
        return script.error_in([token], message, kind)
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
    return script.error_in([token], message, kind)


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


def check_supported(script: Script, tree: exp.Expr, tokens: list[Token]) -> None:
    """Raise for the first invalid part: `UnsupportedSqlError`, or `SqlError` for a mistake.

    `tokens` are those of the tree, for a part without a position of its own.
    """
    whole = tokens[0].start, tokens[-1].end + 1
    for node in tree.walk(bfs=False):
        message = None if node.meta.get(GENERATED) else ADVICE["nodes"].get(type(node).__name__)
        if isinstance(node, exp.LimitOptions):
            message = _limit_error(node)
        error_class = SqlError if message is None else UnsupportedSqlError
        message = message or _syntax_mistake(node)
        if message is not None:
            raise script.error(message, *script.place_of(node, whole), error_class)


def _syntax_mistake(node: exp.Expr) -> str | None:
    if isinstance(node, exp.Values):
        widths = {len(row.expressions) for row in node.expressions}
        if len(widths) > 1 or 0 in widths:
            return "each row of VALUES needs the same number of values, at least one"
    if isinstance(node, exp.Group) and not any(node.args.values()):
        return "GROUP BY needs an expression; name a column"
    return None


def _limit_error(node: exp.LimitOptions) -> str | None:
    if node.args.get("with_ties"):
        return "WITH TIES is not supported; number the rows with RANK, and filter by the number"
    if node.args.get("percent"):
        return "a LIMIT in percent is not supported; write a number of rows"
    return None
