"""The text of a script, and errors that point into it."""

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from streamhouse.errors import SqlError, UnsupportedSqlError
from streamhouse.sql.secrets import LEXEME, disjoint_secrets, edited
from streamhouse.sql.syntax import Query, TextPosition
from streamhouse.sql.udf.function import Declarations

_UNCLOSED = {
    "'": "this string is never closed; end it with '",
    "`": "this quoted name is never closed; end it with `",
    "/*": "this comment is never closed; end it with */",
    '"': "double quotes are not used in Flink SQL; write 'text' for a string, `name` for a name",
}


@dataclass(frozen=True)
class Script:
    """A text that reports its offsets as line and column, both counted from 1.

    `line` is the number of the text's first line, if the text is part of a longer script.
    `functions` are the Python functions that the text may call.
    """

    text: str
    line: int = 1
    functions: Declarations = field(default_factory=dict, compare=False, repr=False)

    @cached_property
    def _starts(self) -> list[int]:
        return [0, *(match.end() for match in re.finditer("\n", self.text))]

    @cached_property
    def _masked(self) -> str:
        """The text with stars for the values of secret options; its length stays the same."""
        found = ((each.start, each.end) for each in disjoint_secrets(self.text))
        stars = ((at, end, re.sub(r"[^\n]", "*", self.text[at:end])) for at, end in found)
        return edited(self.text, stars)

    def position(self, offset: int) -> TextPosition:
        line = bisect_right(self._starts, offset)
        return TextPosition(line + self.line - 1, offset - self._starts[line - 1] + 1)

    def error(
        self, message: str, start: int, end: int | None = None, kind: type[SqlError] = SqlError
    ) -> SqlError:
        """An error of class `kind` about the text from `start` up to (not including) `end`."""
        start = min(start, len(self.text))
        position = self.position(start)
        line_start = self._starts[position.line - self.line]
        return kind(
            message,
            line=position.line,
            column=position.column,
            source_line=self._masked[line_start:].split("\n", 1)[0].rstrip("\r"),
            snippet=self._masked[start : end if end is not None else start + 1],
        )

    def place_of(self, node: exp.Expr, whole: tuple[int, int] | None = None) -> tuple[int, int]:
        """The range (start, end exclusive) of a node, or of the nearest one around it that has one.

        Without any: `whole`, or the whole text.
        """
        current: exp.Expr | None = node
        while current is not None:
            if (offsets := span(current)) is not None:
                return offsets
            current = current.parent
        return whole or (len(self.text) - len(self.text.lstrip()), len(self.text))

    def error_at(self, node: exp.Expr, message: str, kind: type[SqlError] = SqlError) -> SqlError:
        """An error at the place of a parsed node."""
        return self.error(message, *self.place_of(node), kind)

    def error_in(
        self, tokens: Sequence[Token], message: str, kind: type[SqlError] = SqlError
    ) -> SqlError:
        """An error about tokens, from the first to the last one."""
        return self.error(message, tokens[0].start, tokens[-1].end + 1, kind)

    def unsupported(self, node: exp.Expr, message: str) -> SqlError:
        return self.error_at(node, message, UnsupportedSqlError)

    def hints(self, start: int, end: int) -> Iterator[Token]:
        """The hint blocks `/*+ … */` in a range, each as a token whose text is the block's body.

        Raises `SqlError` for a quote or comment that is never closed.
        """
        for match in LEXEME.finditer(self.text, start, end):
            if match.lastgroup == "bad":
                raise self.error(_UNCLOSED[match.group()], match.start(), match.end())
            if match.lastgroup == "hint":
                body, first, last = match.group()[3:-2], match.start(), match.end() - 1
                yield Token(TokenType.HINT, body, start=first, end=last)


def of_query(query: Query) -> Script:
    """The query with the text before it on its first line; positions are those in the whole script.

    The query's own text starts at offset `query.position.column - 1`.
    """
    margin = query.prefix.rjust(query.position.column - 1)
    return Script(margin + query.text, query.position.line, query.functions)


def ticked(name: str) -> str:
    """A name in backticks, as Flink quotes it."""
    return "`" + name.replace("`", "``") + "`"


_PLACE = ("line", "col", "start", "end")


def place(node: exp.Expr) -> dict[str, int]:
    """The keys of the `meta` of a node that have its place in the text."""
    return {key: node.meta[key] for key in _PLACE if key in node.meta}


def forget_places(tree: exp.Expr) -> None:
    """Let no part of a tree have a place: it is of another text."""
    for node in tree.walk():
        for key in _PLACE:
            node.meta.pop(key, None)


def span(node: exp.Expr) -> tuple[int, int] | None:
    """The range (start, end exclusive) of a node's parts with a position; None if none has one."""
    positions = [part.meta for part in node.walk() if "start" in part.meta]
    if not positions:
        return None
    return min(p["start"] for p in positions), max(p["end"] for p in positions) + 1
