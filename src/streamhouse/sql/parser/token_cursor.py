"""A cursor over the tokens of one statement, which parses everything that is not a query."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NoReturn, Self, TypeVar

from sqlglot.tokenizer_core import Token, TokenType

from streamhouse.close_matches import closest
from streamhouse.errors import SqlError, UnsupportedSqlError
from streamhouse.options import table_of
from streamhouse.sql.syntax import TextPosition
from streamhouse.sql.text import Script

ADVICE: Mapping[str, Mapping[str, str]] = table_of(__package__, "unsupported_syntax.toml")
"""Syntax that is not supported, and what to write instead, by the place of its words."""
_T = TypeVar("_T")
_DEPTH_CHANGE = {
    TokenType.L_PAREN: 1, TokenType.L_BRACKET: 1, TokenType.R_PAREN: -1, TokenType.R_BRACKET: -1
}  # fmt: skip


@dataclass
class Cursor:
    """The tokens of a statement and the index of the next one.

    Words are compared in upper case. A token such as `GROUP BY` is split into its two words;
    `original` keeps the tokens as the lexer made them, for the parser of queries.
    """

    script: Script
    tokens: list[Token]
    original: list[Token] = field(default_factory=list)
    index: int = 0

    def __post_init__(self) -> None:
        self.original = self.original or self.tokens
        self.tokens = [part for token in self.tokens for part in _split_words(token)]

    def part(self, tokens: list[Token]) -> Self:
        """A new cursor over some of the tokens."""
        return type(self)(self.script, tokens, self.original)

    def rest(self) -> list[Token]:
        """The remaining tokens, as the lexer made them."""
        return self.lexed(self.tokens[self.index :])

    def lexed(self, tokens: list[Token]) -> list[Token]:
        """Tokens of the statement as the lexer made them."""
        first = bisect_left(self.original, tokens[0].start, key=lambda token: token.start)
        last = bisect_right(self.original, tokens[-1].end, key=lambda token: token.end)
        return self.original[first:last]

    @property
    def done(self) -> bool:
        return self.index >= len(self.tokens)

    @property
    def current(self) -> Token | None:
        return None if self.done else self.tokens[self.index]

    @property
    def previous(self) -> Token:
        """The token that was taken last."""
        return self.tokens[self.index - 1]

    @property
    def offset(self) -> int:
        """Where the next token starts (or the statement ends)."""
        if self.done:
            return self.tokens[-1].end + 1 if self.tokens else len(self.script.text)
        return self.tokens[self.index].start

    def peek(self, ahead: int = 0) -> str:
        """The word ahead in upper case; empty for strings, quoted names, hints and the end."""
        index = self.index + ahead
        if index >= len(self.tokens):
            return ""
        token = self.tokens[index]
        if token.token_type in (TokenType.STRING, TokenType.IDENTIFIER, TokenType.HINT):
            return ""
        return token.text.upper()

    def at(self, *words: str) -> bool:
        return all(self.peek(ahead) == word for ahead, word in enumerate(words))

    def at_kind(self, *kinds: TokenType) -> bool:
        """Whether the next token is of one of these kinds."""
        return not self.done and self.tokens[self.index].token_type in kinds

    def accept(self, *words: str) -> bool:
        """Step over the words if all of them come next; return whether they did."""
        if not self.at(*words):
            return False
        self.index += len(words)
        return True

    def expect(self, *words: str) -> None:
        if not self.accept(*words):
            self.fail(f"expected {' '.join(words)}")

    def take(self) -> Token:
        if self.done:
            self.fail("the statement ends too early")
        self.index += 1
        return self.tokens[self.index - 1]

    def one_of(self, *words: str) -> str:
        """Take one of some words; returns it in upper case."""
        if self.peek() not in words:
            self.unknown_keyword(words)
        return self.take().text.upper()

    def identifier(self, what: str) -> str:
        """Take a name, quoted with ` or a plain word."""
        return self._text_if(not self.done and _is_name(self.tokens[self.index]), what)

    def string(self, what: str) -> str:
        """Take a `'string'`; returns its text."""
        return self._text_if(self.at_kind(TokenType.STRING), f"{what} as a 'string'")

    def whole_number(self, what: str) -> int:
        """Take a number of digits only."""
        is_whole = self.at_kind(TokenType.NUMBER) and self.peek().isdigit()
        return int(self._text_if(is_whole, f"{what} as a whole number"))

    def _text_if(self, found: bool, expected: str) -> str:
        """The text of the next token, which must be what is expected."""
        if not found:
            self.fail(f"expected {expected}")
        return self.take().text

    def listed(self, item: Callable[[], _T]) -> list[_T]:
        """Take `a, b, …`, each part by `item`."""
        found = [item()]
        while self.accept(","):
            found.append(item())
        return found

    def wrapped(
        self, item: Callable[[], _T], brackets: str = "()", empty: bool = False
    ) -> list[_T]:
        """Take `(a, b, …)`, each part by `item`; `empty`: there may be none."""
        self.expect(brackets[0])
        if empty and self.accept(brackets[1]):
            return []
        found = self.listed(item)
        if not self.accept(brackets[1]):
            self.fail(f"expected ',' or '{brackets[1]}'")
        return found

    def until(self, *ends: str) -> list[Token]:
        """Take the tokens up to a `)` or one of the words, or to the end.

        Words within brackets or CASE … END do not count.
        """
        depth, cases, start = 0, 0, self.index
        while not self.done:
            step, word = _DEPTH_CHANGE.get(self.tokens[self.index].token_type, 0), self.peek()
            if depth == 0 and (step < 0 or (cases == 0 and word in ends)):
                break
            depth += step
            cases += (word == "CASE") - (word == "END" and cases > 0)
            self.index += 1
        return self.tokens[start : self.index]

    def text_of(self, tokens: list[Token]) -> str:
        return self.script.text[tokens[0].start : tokens[-1].end + 1]

    @property
    def place(self) -> tuple[TextPosition, str]:
        """The position and the text of the whole statement, the first fields of its record."""
        return self.script.position(self.tokens[0].start), self.text_of(self.tokens)

    def end(self, expected: str = "the end of the statement (;)") -> None:
        if not self.done:
            self.fail(f"expected {expected}")

    def unknown_keyword(self, words: tuple[str, ...]) -> NoReturn:
        """Raise that the next word is none of `words`, and suggest the nearest of them."""
        token = self.current
        got = token.text if token else ""
        guess = closest(got, words)
        hint = f"did you mean {guess}?" if guess else f"expected one of {', '.join(words)}"
        if token is None:
            self.fail(f"expected one of {', '.join(words)}")
        raise self.script.error_in([token], f"'{got}' is not expected here; {hint}")

    def fail(self, message: str) -> NoReturn:
        token = self.current
        if token is None:
            if not message.startswith("the statement"):
                message = f"the statement ends too early: {message}"
            raise self.script.error(message, self.offset)
        got = (
            "a string"
            if token.token_type == TokenType.STRING
            else self.script.text[token.start : token.end + 1]
        )
        raise self.script.error_in([token], f"{message}, got {got}")

    def refuse(self, place: str, start: int | None = None, word: str = "") -> None:
        """Raise for next words that are not supported at a place of `ADVICE`."""
        for words, message in ADVICE[place].items():
            if self.at(*words.split()):
                self.unsupported(message.format(word), start)

    def unsupported(self, message: str, start: int | None = None) -> NoReturn:
        """Raise that known syntax is not supported, from `start` to the last token taken."""
        raise self.error(message, self.offset if start is None else start, UnsupportedSqlError)

    def error(self, message: str, start: int, kind: type[SqlError] = SqlError) -> SqlError:
        """An error about the text from `start` to the last token taken, or else the next token."""
        last = self.tokens[max(self.index - 1, 0)].end + 1
        if last <= start and not self.done:
            last = self.tokens[self.index].end + 1
        return self.script.error(message, start, last, kind)


def _split_words(token: Token) -> list[Token]:
    if token.token_type in (TokenType.STRING, TokenType.IDENTIFIER, TokenType.HINT):
        return [token]
    words = token.text.split()
    if len(words) < 2:
        return [token]
    tokens, offset = [], token.start
    for word in words[:-1]:
        tokens.append(Token(TokenType.VAR, word, start=offset, end=offset + len(word) - 1))
        offset += len(word) + 1
    last = words[-1]
    tokens.append(Token(TokenType.VAR, last, start=token.end - len(last) + 1, end=token.end))
    return tokens


def _is_name(token: Token) -> bool:
    if token.token_type in (TokenType.STRING, TokenType.NUMBER, TokenType.HINT):
        return False
    return token.token_type == TokenType.IDENTIFIER or token.text.replace("$", "_").isidentifier()
