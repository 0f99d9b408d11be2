"""Splits a statement of MySQL or MariaDB into tokens, as the server's lexer does."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import NamedTuple, Self


class Kind(Enum):
    """The kinds of tokens; `WORD`: an unquoted name, keyword or number."""

    WORD = "word"
    NAME = "name"
    STRING = "string"
    SYMBOL = "symbol"


class Token(NamedTuple):
    """A token; `text` is a name or string without its quotes, with escapes resolved."""

    kind: Kind
    text: str


@dataclass(frozen=True)
class LexerOptions:
    """How the server reads a statement: its kind, and the SQL mode of the session.

    `blank`: characters outside ASCII that are blanks in the session's character set.
    """

    ansi_quotes: bool = False
    backslashes: bool = True
    mariadb: bool = True
    blank: str = ""


DEFAULT = LexerOptions()
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "b": "\b", "Z": "\x1a"}


def tokens(text: str, lexis: LexerOptions = DEFAULT) -> list[Token]:
    """The tokens of a statement, without comments.

    The content of executable comments (`/*! … */`, on MariaDB also `/*M! … */`) is part of the
    statement: a server logs those that it does not execute as plain comments.
    """
    found: list[Token] = []
    executable = 0
    for match in _pattern(lexis).finditer(text):
        kind, raw = match.lastgroup, match.group()
        if kind == "open":
            executable += 1
        elif kind == "close" and executable:
            executable -= 1
        elif kind == "word":
            found.append(Token(Kind.WORD, raw))
        elif kind == "name":
            found.append(Token(Kind.NAME, raw[1:-1].replace(raw[0] * 2, raw[0])))
        elif kind == "string":
            found.append(Token(Kind.STRING, _unquoted(raw, lexis)))
        elif kind in ("symbol", "close"):
            found += [Token(Kind.SYMBOL, char) for char in raw]
    return found


def _unquoted(raw: str, lexis: LexerOptions) -> str:
    quote, text = raw[0], raw[1:-1]
    parts = _ESCAPED.split(text) if lexis.backslashes else [text]
    texts = [part.replace(quote * 2, quote) for part in parts[::2]]
    escapes = [_ESCAPES.get(char, char) for char in parts[1::2]]
    return "".join(a + b for a, b in zip(texts, [*escapes, ""], strict=True))


@lru_cache(64)
def _pattern(lexis: LexerOptions) -> re.Pattern[str]:
    inside = r"(?:[^{q}\\]++|\\.|{q}{q})*+" if lexis.backslashes else r"(?:[^{q}]++|{q}{q})*+"
    single, double = ("{q}" + inside + "{q}").format(q="'"), ("{q}" + inside + "{q}").format(q='"')
    backquoted = r"`(?:[^`]++|``)*+`"
    ansi = r'"(?:[^"]++|"")*+"'
    names = f"{backquoted}|{ansi}" if lexis.ansi_quotes else backquoted
    strings = single if lexis.ansi_quotes else f"{single}|{double}"
    mark = "M?!" if lexis.mariadb else "!"
    return re.compile(
        rf"(?P<blank>[{_ASCII_BLANK}{re.escape(lexis.blank)}]+|\#[^\n]*|--(?=[\0- ]|\Z)[^\n]*)"
        rf"|(?P<open>/\*{mark}(?:\d{{5,6}})?)"
        r"|(?P<comment>/\*.*?(?:\*/|\Z))"
        r"|(?P<close>\*/)"
        rf"|(?P<string>{strings})|(?P<name>{names})"
        r"|(?P<word>[0-9A-Za-z_$\x80-\U0010ffff]+)"
        r"|(?P<symbol>.)",
        re.DOTALL,
    )


_ASCII_BLANK = r"\t-\r \0"
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


_OPEN, _CLOSE = Token(Kind.SYMBOL, "("), Token(Kind.SYMBOL, ")")
_RAW_NAME = "#mysql50#"
"""Prefix of a name that is written like the name of the table's file."""


class TableName(NamedTuple):
    """A table; `name` None: all tables of the database."""

    database: str
    name: str | None

    @classmethod
    def parsed(cls, database: str, name: str, ignores_case: bool) -> Self:
        """The name as the parser returns it: in lower case if the server ignores case."""
        return cls(database.lower(), name.lower()) if ignores_case else cls(database, name)


class UnclearStatement(Exception):
    """The statement has an unknown form."""


class TokenCursor:
    """Takes tokens from the start of a statement; keywords are upper-case.

    `fold`: table and database names become lower-case, as they are on servers that ignore case.
    """

    def __init__(self, found: Sequence[Token], fold: bool = False) -> None:
        self.tokens = found
        self.at = 0
        self.fold = fold

    def __bool__(self) -> bool:
        """Whether there is a token left."""
        return self.at < len(self.tokens)

    def word(self, ahead: int = 0) -> str:
        """The next keyword or symbol, in upper case; empty at the end and at quoted tokens."""
        at = self.at + ahead
        if at < len(self.tokens) and self.tokens[at].kind in (Kind.WORD, Kind.SYMBOL):
            return self.tokens[at].text.upper()
        return ""

    def skip(self, *words: str) -> bool:
        """Skip the words, if they are the next ones."""
        if all(self.word(ahead) == word for ahead, word in enumerate(words)):
            self.at += len(words)
            return True
        return False

    def skip_one(self, *words: str) -> bool:
        """Skip the next word, if it is one of these."""
        found = self.word() in words
        self.at += found
        return found

    def skip_any(self, *words: str) -> None:
        """Skip these words, in any order."""
        while self.word() in words:
            self.at += 1

    def take(self) -> Token:
        """The next token; raises `UnclearStatement` at the end."""
        if not self:
            raise UnclearStatement
        self.at += 1
        return self.tokens[self.at - 1]

    def expect(self, *words: str) -> None:
        """Skip the words; raises `UnclearStatement` if others follow."""
        if not self.skip(*words):
            raise UnclearStatement

    def end(self, *tails: str) -> None:
        """Skip these words; raises `UnclearStatement` if anything else is left."""
        self.skip_any(";", ")", *tails)
        if self:
            raise UnclearStatement

    def name(self) -> str:
        """A name, quoted or not."""
        token = self.take()
        if token.kind not in (Kind.NAME, Kind.WORD):
            raise UnclearStatement
        return token.text

    def part(self) -> str:
        """A part of a table's name."""
        name = self.name().removeprefix(_RAW_NAME)
        return name.lower() if self.fold else name

    def table(self, database: str) -> TableName:
        """A table's name; `database`: the default one."""
        default = database.lower() if self.fold else database
        if self.skip("."):
            return TableName(default, self.part())
        first = self.part()
        return TableName(first, self.part()) if self.skip(".") else TableName(default, first)

    def parenthesized(self) -> list[Token]:
        """The tokens within the parentheses that begin here."""
        start, depth = self.at + 1, 0
        while True:
            token = self.take()
            depth += (token == _OPEN) - (token == _CLOSE)
            if not depth:
                return list(self.tokens[start : self.at - 1])

    def rest(self) -> list[Token]:
        """The tokens that are left."""
        return list(self.tokens[self.at :])


def split(found: Sequence[Token]) -> list[list[Token]]:
    """Split at commas outside parentheses."""
    parts: list[list[Token]] = [[]]
    depth = 0
    for token in found:
        depth += (token == _OPEN) - (token == _CLOSE)
        if not depth and token == (Kind.SYMBOL, ","):
            parts.append([])
        else:
            parts[-1].append(token)
    return parts


def outer_words(found: Sequence[Token]) -> list[str]:
    """The keywords outside parentheses, in upper case."""
    words: list[str] = []
    depth = 0
    for token in found:
        depth += (token == _OPEN) - (token == _CLOSE)
        if not depth and token.kind is Kind.WORD:
            words.append(token.text.upper())
    return words
