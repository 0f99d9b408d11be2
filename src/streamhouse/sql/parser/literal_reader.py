"""Reads the rows of a long INSERT … VALUES from its tokens, without the SQL parser (decision 259).

The parser creates a dozen objects per value and makes several passes over all of them. Rows that
programs write differ only in their literals. So this module reads each cell as a *form* and the
literals in it: `-1.5`, `CAST('a' AS BYTES)` and `TIMESTAMP '2024-01-01 00:00:00'` are three forms.
Only the first cell of each form is parsed (`streamhouse.sql.batch.literal_insert`); the literals of
all cells become columns of an Arrow table. The parser reads any text that does not consist of such
rows.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import TypeAlias

from sqlglot.tokenizer_core import Token, TokenType

from streamhouse.sql.literal_rows import Form, LiteralRows

MOST_FORMS = 64
"""A column with more forms has expressions rather than values: the parser reads the list."""
LEAST_TOKENS = 400
"""The parser reads shorter lists."""

_OPENING = (TokenType.L_PAREN, TokenType.L_BRACKET)
_CLOSING = (TokenType.R_PAREN, TokenType.R_BRACKET)
_NUMBER = re.compile(r"(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?")
_TIMESTAMP = re.compile(r"\s*\d+-\d+-\d+[ T][\d:]+(?:\.(\d*))?\s*")
_CONSTANTS = ("NULL", "TRUE", "FALSE")
_OPENERS = ("ARRAY", "CAST", "MAP", "ROW", "TRY_CAST", "DATE", "TIME", "TIMESTAMP", *_CONSTANTS)
"""Words around literals whose meaning does not depend on these literals."""
_LITERAL_FUNCTIONS = (
    "ABS", "FROM_BASE64", "LOWER", "MD5", "SHA256", "TO_BASE64", "TO_DATE", "TO_TIMESTAMP",
    "TO_TIMESTAMP_LTZ", "UPPER",
)  # fmt: skip
"""Functions with any literal as first argument; the others decide what they compute."""
_BEFORE_BRACKETS = ("", "(", "[", ",", "-", *_OPENERS, *_LITERAL_FUNCTIONS)
_INT, _LONG = 2**31 - 1, 2**63 - 1

_Shape: TypeAlias = tuple[str, ...]
"""The tokens of a cell: of a literal what its type depends on, of others their text."""


def read(tokens: Sequence[Token], start: int) -> LiteralRows | None:
    """The rows of a query whose tokens are VALUES and a list; None if the parser has to read them.

    The offsets of the forms count from `start`.
    """
    columns: list[dict[_Shape, Form]] = []
    index, count = 1, 0
    while True:
        cells, after = _row(tokens, index)
        columns = columns or [{} for _ in cells]
        if not cells or len(cells) != len(columns):
            return None
        for forms, cell in zip(columns, cells, strict=True):
            if not _add(forms, cell, count, start):
                return None
        index, count = after + 1, count + 1
        if after == len(tokens):
            return LiteralRows(count, tuple(tuple(forms.values()) for forms in columns))
        if tokens[after].token_type != TokenType.COMMA:
            return None


def _row(tokens: Sequence[Token], index: int) -> tuple[list[Sequence[Token]], int]:
    """The cells of the row that starts at an index, and the index after it; none if no row does.

    A cell has the tokens between two commas.
    """
    cells: list[Sequence[Token]] = []
    depth, first = 0, index + 1
    for place in range(index, len(tokens)):
        kind = tokens[place].token_type
        if depth == 0 and kind != TokenType.L_PAREN:
            break
        if kind in _OPENING:
            depth += 1
        elif kind in _CLOSING:
            depth -= 1
            if depth == 0 and kind == TokenType.R_PAREN:
                return [*cells, tokens[first:place]], place + 1
        elif depth == 1 and kind == TokenType.COMMA:
            cells.append(tokens[first:place])
            first = place + 1
    return [], index


def _add(forms: dict[_Shape, Form], cell: Sequence[Token], row: int, start: int) -> bool:
    """Add a cell of a column to its form; False for an empty cell, or if the forms are too many."""
    shape = tuple(map(_shape, cell))
    parameters, constants = _literals(shape)
    key = (*shape, *(cell[index].text for index in constants))
    form = forms.get(key)
    if form is None:
        if not cell or len(forms) == MOST_FORMS:
            return False
        offsets = tuple(cell[index].start - start for index in parameters)
        span = (cell[0].start - start, cell[-1].end + 1 - start)
        form = forms[key] = Form(*span, offsets, [], tuple([] for _ in offsets))
    form.rows.append(row)
    for texts, index in zip(form.texts, parameters, strict=True):
        texts.append(cell[index].text)
    return True


def _shape(token: Token) -> str:
    """A literal as `'` or `#` and what its type depends on; any other token as its text.

    For a number: its digits before and after the point, whether it has an exponent, and whether it
    fits in 32 or 64 bits. For the text of a timestamp: the number of digits after the seconds.
    """
    text = token.text
    if token.token_type == TokenType.STRING:
        timestamp = _TIMESTAMP.fullmatch(text) if "-" in text else None
        return "'" if timestamp is None else f"'{len(timestamp[1] or '')}"
    if token.token_type != TokenType.NUMBER or not _NUMBER.fullmatch(text):
        return text.upper() if token.token_type != TokenType.IDENTIFIER else f"`{text}"
    if text.isdigit():
        size = int(text)
        return f"#{len(text)}{'' if size <= _INT else 'L' if size <= _LONG else 'H'}"
    if "e" in text or "E" in text:
        return "#E"
    whole, _, fraction = text.partition(".")
    return f"#{0 if whole == '0' else len(whole)}.{len(fraction)}"


@lru_cache(maxsize=1024)
def _literals(shape: _Shape) -> tuple[list[int], list[int]]:
    """The places of literals in a cell: those that are parameters of its form, and the others.

    A literal is a parameter if it is only within words of `_OPENERS` and first arguments of
    `_LITERAL_FUNCTIONS`, and has no operator next to it except a sign. Otherwise it is part of the
    form.
    """
    parameters: list[int] = []
    literals = [place for place, word in enumerate(shape) if word[0] in "'#"]
    constant, opened, last = False, list[tuple[bool, str]](), ""
    for place, word in enumerate(shape):
        if word[0] in "'#":
            if not constant:
                parameters.append(place)
            word = "'"
        elif word in ("(", "["):
            if not constant and last not in _BEFORE_BRACKETS:
                return [], literals
            opened.append((constant, last))
        elif word in (")", "]"):
            constant = opened.pop()[0]
        elif word == ",":
            constant = constant or opened[-1][1] in _LITERAL_FUNCTIONS
        elif word == "AS":
            # A type follows: the numbers in it are sizes, and no values.
            constant = True
        elif not constant and word not in (*_OPENERS, *_LITERAL_FUNCTIONS, "-"):
            return [], literals
        last = word
    return parameters, [place for place in literals if place not in parameters]
