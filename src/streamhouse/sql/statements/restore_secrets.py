"""Restores the secrets of a script that was shown with stars for them (decision 147)."""

import re
from bisect import bisect_right
from collections.abc import Iterator

from streamhouse.sql.secrets import (
    LEXEME,
    STARS,
    OptionValue,
    disjoint_secrets,
    edited,
    quoted_options,
    without_secrets,
)
from streamhouse.sql.text import Script

_COMMENTS = ("line", "block")
_QUOTED = ("string", "name", "hint", *_COMMENTS)
_CREATE = re.compile(
    r"\s*CREATE\s+(?:TEMPORARY\s+)?(?P<kind>TABLE|CATALOG)\s+(?:IF\s+NOT\s+EXISTS\s+)?"
    r"(?P<name>(?:`(?:[^`]|``)*`|[\w.])+)",
    re.IGNORECASE,
)
_ADDRESS = ("connector", "driver", "endpoint", "host", "path", "port", "type", "uri", "url", "user",
            "warehouse")  # fmt: skip
"""Parts of the names of options that determine where a secret is sent."""
_KEY = re.compile(r"[\w.-]+")


def restore_secrets(text: str, previous: str) -> str:
    """The script with its stars replaced by the secrets of its `previous` version.

    It takes a value from the same option of the same table or catalog, if connector, address and
    user are the same, too. So an edit cannot send a secret to another server. In other statements
    it takes a value if nothing else in the statement differs. Stars in comments stay. Raises
    `SqlError`, with the position, for stars for which `previous` has no value, or several different
    ones.
    """
    values: dict[tuple[str, str], set[str]] = {}
    for owner, value in _secrets_by_statement(previous):
        values.setdefault((owner, value.key), set()).add(previous[value.start : value.end])
    edits: list[tuple[int, int, str]] = []
    for owner, value in _secrets_by_statement(text):
        if text[value.start : value.end] != STARS:
            continue
        candidates = values.get((owner, value.key), set())
        if len(candidates) != 1:
            what = f"of '{value.key}'" if _KEY.fullmatch(value.key) else "in the URL"
            raise Script(text).error(
                f"the secret {what} is unknown here; write it out. Stars are replaced only by the "
                "value in this pipeline's last script, for a table with the same name, address and "
                "user",
                value.start,
                value.end,
            )
        edits.append((value.start, value.end, next(iter(candidates))))
    return edited(text, edits)


def _secrets_by_statement(text: str) -> Iterator[tuple[str, OptionValue]]:
    """Yields each secret outside of comments, with its statement's key (`_statement_key`)."""
    code = _blanked(text, _COMMENTS)
    ends = [match.start() for match in re.finditer(";", _blanked(text, _QUOTED))]
    owners: dict[int, str] = {}
    for value in disjoint_secrets(text):
        if not code[value.start : value.end].strip():
            continue
        number = bisect_right(ends, value.start)
        if number not in owners:
            first = ends[number - 1] + 1 if number else 0
            last = ends[number] if number < len(ends) else len(code)
            owners[number] = _statement_key(code[first:last])
        yield owners[number], value


def _statement_key(statement: str) -> str:
    """A key that identifies a statement, and does not depend on its secrets.

    For a table or catalog: its kind, its name, and its options for connector, address and user.
    """
    match = _CREATE.match(statement)
    if match is None:
        return " ".join(without_secrets(statement).split())
    options = {value.key: statement[value.start : value.end] for value in quoted_options(statement)}
    address = [
        (key, without_secrets(text))
        for key, text in sorted(options.items())
        if any(word in key.lower() for word in _ADDRESS)
    ]
    return f"{match['kind'].upper()} {match['name'].replace('`', '')} {address}"


def _blanked(text: str, kinds: tuple[str, ...]) -> str:
    """The text with spaces for lexemes of these kinds; its length stays the same."""
    edits = []
    for match in LEXEME.finditer(text):
        start, end = match.span()
        if match.group() == "/*":
            # A comment that is never closed. Going on would search the rest again and again.
            edits.append((start, len(text), " " * (len(text) - start)))
            break
        if match.lastgroup in kinds:
            edits.append((start, end, " " * (end - start)))
    return edited(text, edits)
