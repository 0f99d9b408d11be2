"""Secret values in a script: finds them, and masks them for display."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from streamhouse.options import is_secret

STARS = "****"
"""Replaces the value of a secret option."""

LEXEME = re.compile(
    r"""
    (?P<string>'(?:[^']|'')*')
    | (?P<name>`(?:[^`]|``)*`)
    | (?P<line>--[^\n]*)
    | (?P<hint>/\*\+.*?\*/)
    | (?P<block>/\*.*?\*/)
    | (?P<bad>['`"]|/\*)
    """,
    re.VERBOSE | re.DOTALL,
)
"""Strings, quoted names, comments and hints of a script.

`bad` matches the start of one that is never closed, and any double quote.
"""

_URL_SECRET = re.compile(
    r"://[^\s/:@]*:(?P<login>[^\s/@]+)@|[?&;]\w*(?:password|secret|token)\w*=(?P<option>[^&;'\s]+)",
    re.IGNORECASE,
)
_BARE_OPTION = re.compile(
    r"^[ \t]*SET[ \t]+(?P<key>[\w.-]+)[ \t]*=[ \t]*(?P<value>[^;\n]+)", re.IGNORECASE | re.MULTILINE
)
# Options of a procedure: 'hostname=db,password=x'.
_PAIR = re.compile(
    r"(?<=[',;])\s*(?P<key>[\w.-]+)=(?P<value>(?:[^,;'\s]|'')(?:[^,;'\n]|'')*)", re.IGNORECASE
)
# Also matches in comments, where an apostrophe may be unpaired.
_OPTION = re.compile(r"'(?P<key>[^'\n]*)'\s*=\s*'(?P<value>(?:[^'\n]|'')+)")


@dataclass(frozen=True)
class OptionValue:
    """An option's value in a text: its start and end offsets, without its quotes.

    `key` is the option's name; for a secret in a URL it is the text before it, as `://user:`.
    """

    start: int
    end: int
    key: str


def secrets(text: str) -> Iterator[OptionValue]:
    """Yields the values of secret options, also in comments; may yield a value twice."""
    for value in quoted_options(text):
        if is_secret(value.key) and value.start < value.end:
            yield value
    for match in _URL_SECRET.finditer(text):
        start, end = match.span("login" if match["login"] else "option")
        yield OptionValue(start, end, text[match.start() : start])
    matches = [*_BARE_OPTION.finditer(text), *_OPTION.finditer(text)]
    if "CALL" in text.upper():
        matches += _PAIR.finditer(text)
    for match in matches:
        if is_secret(match["key"]):
            yield OptionValue(*match.span("value"), match["key"])


def disjoint_secrets(text: str) -> list[OptionValue]:
    """The values of `secrets` in the order of the text, without overlaps."""
    values: list[OptionValue] = []
    for value in sorted(secrets(text), key=lambda secret: (secret.start, -secret.end)):
        if not values or value.start >= values[-1].end:
            values.append(value)
    return values


def without_secrets(text: str) -> str:
    """A script's text for display, with `STARS` for the values of secret options.

    It finds them in WITH and OPTIONS, in SET, in URLs, and in comments.
    """
    return edited(text, ((value.start, value.end, STARS) for value in disjoint_secrets(text)))


def edited(text: str, edits: Iterable[tuple[int, int, str]]) -> str:
    """The text with others in place of its parts: start, end and new text, in their order."""
    parts, at = [], 0
    for start, end, new in edits:
        parts += [text[at:start], new]
        at = end
    return "".join([*parts, text[at:]])


def quoted_options(text: str) -> Iterator[OptionValue]:
    """Yields the value of each `'key' = 'value'` outside of comments.

    A secret value whose quote is never closed reaches to the end of the text.
    """
    if "=" not in text:
        # Saves the scan of long lists of values.
        return
    key, between, at = "", "", 0
    for match in LEXEME.finditer(text):
        between += text[at : match.start()]
        at, kind = match.end(), match.lastgroup
        if kind in ("line", "block"):
            continue
        if kind == "hint":
            inside = match.start() + 3
            for value in quoted_options(match.group()[3:-2]):
                yield OptionValue(value.start + inside, value.end + inside, value.key)
            continue
        if match.group() == "/*":
            return
        assigned = bool(key) and between.strip() == "="
        if assigned and kind == "string":
            yield OptionValue(match.start() + 1, match.end() - 1, key)
        elif assigned and kind == "bad" and is_secret(key):
            yield OptionValue(match.start() + 1, len(text), key)
            return
        key, between = match.group()[1:-1] if kind == "string" else "", ""
