"""Splits a statement of MySQL or MariaDB into tokens, as the server's lexer does."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import NamedTuple


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
