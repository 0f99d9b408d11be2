"""Parses expressions: text with directives, such as `#{Name.firstName}@#{Internet.domainName}`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from streamhouse.errors import OptionError

_DIRECTIVE = re.compile(
    r"#\{\s*(?P<name>[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)?)\s*"
    r"(?P<arguments>(?:'[^']*'\s*,?\s*)*)\}"
)
_ARGUMENT = re.compile(r"'([^']*)'")


@dataclass(frozen=True)
class Directive:
    """`#{provider.method 'argument', …}`; `name` as it was written."""

    name: str
    arguments: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """The name without case and underscores: `Name.fullName` is `name.full_name`."""
        return self.name.replace("_", "").lower()

    def __str__(self) -> str:
        given = ",".join(f"'{argument}'" for argument in self.arguments)
        return f"#{{{self.name}{' ' if given else ''}{given}}}"


def parse_expression(key: str, text: str) -> list[str | Directive]:
    """The parts of an expression; `key`: its option, for messages."""
    parts: list[str | Directive] = []
    at = 0
    for match in _DIRECTIVE.finditer(text):
        parts.append(text[at : match.start()])
        parts.append(Directive(match["name"], tuple(_ARGUMENT.findall(match["arguments"]))))
        at = match.end()
    parts.append(text[at:])
    for part in parts:
        if isinstance(part, str) and "#{" in part:
            raise OptionError(
                f"option '{key}': '{part[part.index('#{') :][:60]}' is not a directive; write "
                "#{provider.method} or #{provider.method 'argument','argument'}"
            )
    return [part for part in parts if part != ""]
