"""Variables of a script: `${name}` anywhere, and `${env:NAME}` in the values of options."""

import re
from collections.abc import Iterator, Mapping

from streamhouse.close_matches import nearest
from streamhouse.errors import OptionError
from streamhouse.secret_references import resolve_secrets
from streamhouse.sql.secrets import LEXEME, edited, quoted_options
from streamhouse.sql.text import Script

_VARIABLE = re.compile(r"(\$?)\$\{([A-Za-z_]\w*)\}")


def with_variables(text: str, values: Mapping[str, str]) -> str:
    """The script with the values of its variables; comments stay as they are.

    In a string or a quoted name, the quotes in a value are doubled. `$${name}` is the text
    `${name}`. Raises `SqlError` with line and column for a variable that has no value.
    """
    if "${" not in text:
        return text
    script, edits = Script(text), []
    for start, end, quote in _parts(text, 0, len(text)):
        for match in _VARIABLE.finditer(text, start, end):
            name = match[2]
            if match[1]:
                value = match[0][1:]
            elif name in values:
                value = values[name].replace(quote, quote * 2) if quote else values[name]
            else:
                known = nearest(name, values) if values else f"set it by --set {name}=…"
                message = f"there is no variable '{name}'; {known}"
                raise script.error(message, match.start(), match.end())
            edits.append((*match.span(), value))
    return edited(text, edits)


def with_references(text: str, required: bool = True) -> str:
    """The script with the environment variables that its options refer to.

    The value of a secret option stays a reference, which is resolved when it is used. Raises
    `OptionError` with line and column for one that is not set, or not allowed; unless `required`,
    it stays, too.
    """
    if "${" not in text:
        return text
    script, edits = Script(text), []
    for option in quoted_options(text):
        value = text[option.start : option.end].replace("''", "'")
        if "${" not in value:
            continue
        try:
            resolved = resolve_secrets({option.key: value}, "", keep=True)[option.key]
        except OptionError as error:
            if not required:
                continue
            at, reason = script.position(option.start), str(error).removeprefix(": ")
            raise OptionError(f"line {at.line}, column {at.column}: {reason}") from None
        edits.append((option.start, option.end, resolved.replace("'", "''")))
    return edited(text, edits)


def _parts(text: str, start: int, end: int) -> Iterator[tuple[int, int, str]]:
    """The parts of a text outside of comments: start, end, and the quote that is around it."""
    at = start
    for match in LEXEME.finditer(text, start, end):
        yield at, match.start(), ""
        at, kind = match.end(), match.lastgroup
        if kind in ("string", "name"):
            yield match.start(), at, text[match.start()]
        elif kind == "hint":
            yield from _parts(text, match.start() + 3, at - 2)
    yield at, end, ""
