"""Reads the rows of a long INSERT … VALUES from the text, without the SQL parser (decision 102).

The parser creates a dozen objects per value and makes several passes over all of them. Rows that
programs write differ only in their literals. So this module reads each cell as a *form* and the
literals in it: `-1.5`, `CAST('a' AS BYTES)` and `TIMESTAMP '2024-01-01 00:00:00'` are three forms.
Only the first cell of each form is parsed (`streamhouse.sql.batch.literal_insert`); the literals of
all cells become columns of an Arrow table. The parser reads any text that does not consist of such
rows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from streamhouse.sql.literal_rows import Form, LiteralRows

MOST_FORMS = 64
"""A column with more forms has expressions rather than values: the parser reads the list."""
LEAST_CHARS = 2000
"""The parser reads shorter lists."""

_STRING = r"'[^']*(?:''[^']*)*'(?!')"
_BLOCK = r"/\*(?!\+)[^*]*(?:\*(?!/)[^*]*)*\*/"
_COMMENT = rf"--[^\n]*|{_BLOCK}"
_SPACE = rf"\s*(?:(?:{_COMMENT})\s*)*"


def _inside(depth: int) -> str:
    """A regex for the text between parentheses, with inner ones nested at most `depth` deep."""
    special = rf"{_STRING}|{_COMMENT}|-(?!-)|/(?!\*)"
    if depth:
        special += rf"|\({_inside(depth - 1)}\)"
    plain = r"[^-'()`\";/]*"
    return rf"{plain}(?:(?:{special}){plain})*"


_ROW = re.compile(rf"\({_inside(3)}\)")
_BETWEEN = re.compile(rf"{_SPACE},{_SPACE}(?=\()")
_GAP = re.compile(_SPACE)
_VALUES = re.compile(
    rf"(?P<skip>{_STRING}|`[^`]*`|{_COMMENT}|/\*\+.*?\*/)|(?P<end>;)|\b(?P<word>VALUES)\b{_SPACE}(?=\()",
    re.DOTALL | re.IGNORECASE,
)
_HEAD = re.compile(r"\bINSERT\b", re.IGNORECASE)
_OTHER = re.compile(r"\b(?:MERGE|SELECT|WITH|FROM)\b", re.IGNORECASE)
_QUOTED = re.compile(rf"{_STRING}|`[^`]*`|{_COMMENT}|/\*\+.*?\*/", re.DOTALL)

_NUMBER = r"(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?(?![\w.])"
_TOKEN = re.compile(
    rf"{_SPACE}(?:(?P<string>{_STRING})|(?P<number>{_NUMBER})|(?P<word>[A-Za-z_]\w*)"
    r"|(?P<open>[(\[])|(?P<close>[)\]])|(?P<comma>,)|(?P<other>[-+*/%|.:<>=!?$&^~{}#@]|\d[\w.]*))"
)
_LITERAL = re.compile(rf"({_STRING}|(?<![\w.]){_NUMBER})")
_COMMENTED = re.compile(r"--|/\*")
_CONSTANTS = ("NULL", "TRUE", "FALSE")
_OPENERS = ("ARRAY", "CAST", "MAP", "ROW", "TRY_CAST", "DATE", "TIME", "TIMESTAMP", *_CONSTANTS)
"""Words around literals whose meaning does not depend on these literals."""
_LITERAL_FUNCTIONS = (
    "ABS", "FROM_BASE64", "LOWER", "MD5", "SHA256", "TO_BASE64", "TO_DATE", "TO_TIMESTAMP",
    "TO_TIMESTAMP_LTZ", "UPPER",
)  # fmt: skip
"""Functions with any literal as first argument; the others decide what they compute."""
_INT, _LONG = 2**31 - 1, 2**63 - 1


def spans(text: str) -> Iterator[tuple[int, int]]:
    """Yields the start of the first and the end of the last row of each long INSERT … VALUES."""
    begin, offset, searching = 0, 0, True
    while match := _VALUES.search(text, offset):
        offset = match.end()
        if match["end"]:
            begin, searching = offset, True
        elif match["word"] and searching:
            searching = False
            head = _QUOTED.sub(" ", text[begin : match.start()])
            if not _HEAD.search(head) or _OTHER.search(head):
                continue
            end = _list_end(text, offset)
            if end - offset >= LEAST_CHARS and _ends(text, end):
                yield offset, end
                offset = end


def _list_end(text: str, start: int) -> int:
    """The end of the last row of a list; `start` if there is no row."""
    end = start
    row = _ROW.match(text, start)
    while row is not None:
        end = row.end()
        between = _BETWEEN.match(text, end)
        row = None if between is None else _ROW.match(text, between.end())
    return end


def _ends(text: str, offset: int) -> bool:
    """Whether the statement ends at an offset."""
    gap = _GAP.match(text, offset)
    assert gap is not None
    return gap.end() == len(text) or text[gap.end()] == ";"


def read(text: str, start: int, end: int) -> LiteralRows | None:
    """The rows between two offsets of a query's text; None if the parser has to read them."""
    try:
        return _Reader(text, end).rows(start)
    except _NotLiteralRows:
        return None


class _NotLiteralRows(Exception):
    """The text does not consist of rows of literals of the same width."""


class _Reader:
    """Reads the rows of one list from left to right.

    It tokenizes a row only if something in it is new. A row with the same text around its literals
    as an earlier row, and with literals of the same kinds, has the same forms.
    """

    def __init__(self, text: str, end: int) -> None:
        self._text = text
        self._end = end
        self._forms: list[dict[str, Form]] = []
        self._templates: dict[str, _Template] = {}

    def rows(self, start: int) -> LiteralRows:
        offset, count = start, 0
        while match := _ROW.match(self._text, offset, self._end):
            self._row(match[0], offset, count)
            offset, count = match.end(), count + 1
            between = _BETWEEN.match(self._text, offset, self._end)
            offset = offset if between is None else between.end()
        if offset != self._end:
            raise _NotLiteralRows
        return LiteralRows(count, tuple(tuple(column.values()) for column in self._forms))

    def _row(self, text: str, start: int, row: int) -> None:
        parts = _LITERAL.split(text)
        template_text, literals = "\0".join(parts[::2]), parts[1::2]
        # In a comment, an apostrophe does not start a string: such a row is always tokenized.
        has_comment = _COMMENTED.search(template_text) is not None
        template = None if has_comment else self._templates.get(template_text)
        if template is not None and template.add(literals, row):
            return
        cells = self._cells(start, row)
        if not has_comment and sum(len(cell.literal_offsets) for cell, _ in cells) == len(literals):
            template = self._templates.setdefault(
                template_text, _Template([cell for cell, _ in cells])
            )
            template.learn(cells, literals)

    def _cells(self, start: int, row: int) -> list[tuple[_Cell, Form]]:
        """Tokenize a row, add it to the forms of its cells, and return these."""
        cells: list[tuple[_Cell, Form]] = []
        offset, done = start + 1, False
        while not done:
            cell, cell_start = _Cell(), offset
            while match := _TOKEN.match(self._text, offset, self._end):
                offset = match.end()
                if cell.ends(match):
                    break
                cell.add(match)
            if match is None or not cell.tokens:
                raise _NotLiteralRows
            cells.append((cell, self._form(len(cells), row, cell, (cell_start, offset - 1))))
            done = match.lastgroup == "close"
        if len(cells) != len(self._forms):
            raise _NotLiteralRows
        for cell, form in cells:
            form.rows.append(row)
            for texts, (_, text) in zip(form.texts, cell.literals, strict=True):
                texts.append(_value(text))
        return cells

    def _form(self, column: int, row: int, cell: _Cell, span: tuple[int, int]) -> Form:
        """The form of a cell; adds it if it is new."""
        if column == len(self._forms):
            if row:
                raise _NotLiteralRows
            self._forms.append({})
        forms = self._forms[column]
        form = forms.get(cell.key)
        if form is None:
            if len(forms) == MOST_FORMS:
                raise _NotLiteralRows
            offsets = tuple(offset for offset, _ in cell.literals)
            form = forms[cell.key] = Form(*span, offsets, [], tuple([] for _ in offsets))
        return form


class _Template:
    """The cells of rows that have the same text around their literals."""

    def __init__(self, cells: list[_Cell]) -> None:
        # For each cell: first and last index of its literals, those that are parameters, its forms.
        self._cells: list[tuple[int, int, list[int], dict[tuple[str, ...], Form]]] = []
        index = 0
        for cell in cells:
            offsets = [offset for offset, _ in cell.literals]
            parameters = [
                index + n for n, offset in enumerate(cell.literal_offsets) if offset in offsets
            ]
            self._cells.append((index, index + len(cell.literal_offsets), parameters, {}))
            index += len(cell.literal_offsets)

    def add(self, literals: list[str], row: int) -> bool:
        """Add a row, given its literals; False if the form of one of its cells is not known."""
        kinds = [_kind(literal) for literal in literals]
        forms = []
        for first, last, parameters, known_forms in self._cells:
            form = known_forms.get(self._key(first, last, parameters, kinds, literals))
            if form is None:
                return False
            forms.append((form, parameters))
        for form, parameters in forms:
            form.rows.append(row)
            for texts, index in zip(form.texts, parameters, strict=True):
                texts.append(_value(literals[index]))
        return True

    def learn(self, cells: list[tuple[_Cell, Form]], literals: list[str]) -> None:
        """Remember the forms of a row's cells for rows with the same kinds of literals."""
        kinds = [_kind(literal) for literal in literals]
        for (first, last, parameters, forms), (_, form) in zip(self._cells, cells, strict=True):
            forms[self._key(first, last, parameters, kinds, literals)] = form

    @staticmethod
    def _key(
        first: int, last: int, parameters: list[int], kinds: list[str], literals: list[str]
    ) -> tuple[str, ...]:
        if len(parameters) == last - first:
            return tuple(kinds[first:last])
        return tuple(kinds[n] if n in parameters else literals[n] for n in range(first, last))


class _Cell:
    """The form of a cell, built while its tokens are read.

    A literal is a parameter of the form if it is only within words of `_OPENERS` and first
    arguments of `_LITERAL_FUNCTIONS`, and has no operator next to it except a sign. Otherwise it is
    part of the form. `literal_offsets` has the offsets of all literals.
    """

    def __init__(self) -> None:
        self.literal_offsets: list[int] = []
        self.tokens: list[str] = []
        self._parts: list[str] = []
        self._parameters: list[tuple[int, str]] = []
        self._constant = False
        self._verbatim = False
        self._open: list[tuple[bool, str]] = []
        self._last = ""

    def ends(self, match: re.Match[str]) -> bool:
        """Whether a token ends the cell."""
        return not self._open and match.lastgroup in ("comma", "close")

    @property
    def literals(self) -> list[tuple[int, str]]:
        """The parameters of the form: the offset and the text of each literal."""
        return [] if self._verbatim else self._parameters

    @property
    def key(self) -> str:
        """A text that is the same for all cells of one form."""
        return "=" + " ".join(self.tokens) if self._verbatim else " ".join(self._parts)

    def add(self, match: re.Match[str]) -> None:
        """Take the next token."""
        kind = match.lastgroup or ""
        text = match[kind]
        self.tokens.append(text)
        if kind in ("string", "number"):
            self._literal(match.start(kind), text)
            return
        word = text.upper()
        self._parts.append(word)
        if kind == "open":
            plain = self._last in ("", "(", "[", ",", "-", *_OPENERS, *_LITERAL_FUNCTIONS)
            self._verbatim |= not plain and not self._constant
            self._open.append((self._constant, self._last))
        elif kind == "close":
            self._constant = self._open.pop()[0]
        elif kind == "comma":
            self._constant = self._constant or self._open[-1][1] in _LITERAL_FUNCTIONS
        elif word == "AS":
            # A type follows: the numbers in it are sizes, and no values.
            self._constant = True
        elif not self._constant:
            self._verbatim |= word not in (*_OPENERS, *_LITERAL_FUNCTIONS, "-")
        self._last = word

    def _literal(self, start: int, text: str) -> None:
        self.literal_offsets.append(start)
        if self._constant:
            self._parts.append(text)
        else:
            self._parts.append(_kind(text))
            self._parameters.append((start, text))
        self._last = "''"


def _value(literal: str) -> str:
    """The value of a literal as text, without quotes."""
    return literal[1:-1].replace("''", "'") if literal[0] == "'" else literal


_TIMESTAMP = re.compile(r"'\s*\d+-\d+-\d+[ T][\d:]+(?:\.(\d*))?\s*'")
_WHOLE = [f"#{digits}" for digits in range(10)]


def _kind(literal: str) -> str:
    """What the type of a literal depends on.

    For a number: its digits before and after the point, whether it has an exponent, and whether it
    fits in 32 or 64 bits. For the text of a timestamp: the number of digits after the seconds.
    """
    if literal[0] == "'":
        timestamp = _TIMESTAMP.fullmatch(literal)
        return "''" if timestamp is None else f"''.{len(timestamp[1] or '')}"
    if literal.isdigit():
        if len(literal) < len(_WHOLE):
            return _WHOLE[len(literal)]
        size = int(literal)
        return f"#{len(literal)}{'' if size <= _INT else 'L' if size <= _LONG else 'H'}"
    if "e" in literal or "E" in literal:
        return "#E"
    whole, _, fraction = literal.partition(".")
    return f"#{0 if whole == '0' else len(whole)}.{len(fraction)}"
