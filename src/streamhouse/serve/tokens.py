"""Bearer tokens and their permissions, read from the file of `--token-file`.

The file has either one token a line, each with all permissions:

    # the dashboard in the hall
    3f0c…

or a YAML list with the permissions of each token:

    tokens:
      - name: dashboard
        token: 3f0c…              # or `sha256:` with the token's digest in hexadecimal
        views: ["shop.*"]         # default: all
        acts: [read, sql]         # default: these two; the third is run
"""

import hashlib
import hmac
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from streamhouse.errors import OptionError
from streamhouse.options import check_known, choice

READ, SQL, RUN = "read", "sql", "run"
ACTS = (READ, SQL, RUN)


TOKEN_ADVICE = (
    "create a token with `openssl rand -hex 32 > token` and pass it with --token-file token, or "
    "in the environment variable STREAMHOUSE_TOKEN"
)
_KEYS = ("name", "token", "sha256", "views", "acts")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_YAML = re.compile(r"^tokens\s*:", re.MULTILINE)
_NOT_IN_TOKENS = re.compile(r"[\s:\"'{}\[\],]")


@dataclass(frozen=True)
class Scope:
    """The views that a client sees, and what it may do with them.

    `views` are `fnmatch` patterns over `database.table` (`shop.*`). `acts` is a subset of `ACTS`:
    `read` views and their changes, run `sql` over them, `run` pipelines. `name` appears in the
    access log; it is empty for an anonymous client.
    """

    name: str = ""
    views: tuple[str, ...] = ("*",)
    acts: frozenset[str] = field(default_factory=lambda: frozenset(ACTS))

    def sees(self, view: str) -> bool:
        """Whether the client may see the view `database.table`."""
        return any(fnmatchcase(view, pattern) for pattern in self.views)

    def may(self, act: str) -> bool:
        """Whether the act is allowed at all; the views are checked by `sees`."""
        return act in self.acts


EVERYTHING = Scope()


@dataclass(frozen=True)
class BearerToken:
    """The SHA-256 digest of a token and its permissions; the token itself is not kept."""

    digest: bytes = field(repr=False)
    scope: Scope


def digest(token: str) -> bytes:
    """The SHA-256 digest of a token."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


def token_of(token: str, name: str = "token") -> BearerToken:
    """A token with all permissions; `OptionError` if the text is empty."""
    if not token.strip():
        raise OptionError(f"the token is empty; {TOKEN_ADVICE}")
    return BearerToken(digest(token.strip()), Scope(name))


def find_scope(tokens: Iterable[BearerToken], sent: str) -> Scope | None:
    """The permissions of the token that a client sent; None if it is unknown.

    Compares with every token in constant time, so the duration reveals nothing.
    """
    sent_digest, scope = digest(sent), None
    for token in tokens:
        if hmac.compare_digest(token.digest, sent_digest):
            scope = token.scope
    return scope


def read_token_file(path: str) -> tuple[BearerToken, ...]:
    """Read a token file; an `OptionError` about it never quotes the file's text."""
    where = f"option '--token-file': {path}"
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise OptionError(f"{where} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise OptionError(f"{where} is not text in UTF-8") from None
    tokens = _parse_yaml(text, where) if _YAML.search(text) else _parse_lines(text, where)
    if not tokens:
        raise OptionError(f"{where} contains no token; {TOKEN_ADVICE}")
    if len({token.digest for token in tokens}) < len(tokens):
        raise OptionError(f"{where}: a token is listed twice; remove one of them")
    return tokens


def _parse_lines(text: str, where: str) -> tuple[BearerToken, ...]:
    tokens: list[BearerToken] = []
    for number, line in enumerate(text.splitlines(), 1):
        token = line.strip()
        if not token or token.startswith("#"):
            continue
        if _NOT_IN_TOKENS.search(token):
            # Otherwise each line of a malformed YAML file would be a token with all permissions.
            raise OptionError(
                f"{where}, line {number}: a token cannot contain spaces, colons, quotes or "
                "brackets; a file with the permissions of each token begins with `tokens:`"
            )
        tokens.append(token_of(token, f"token {len(tokens) + 1}"))
    return tuple(tokens)


def _parse_yaml(text: str, where: str) -> tuple[BearerToken, ...]:
    import yaml

    try:
        record = yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f" in line {mark.line + 1}" if mark is not None else ""
        # The parser's own message quotes the text, which may hold tokens.
        raise OptionError(f"{where} is not YAML{line}") from None
    tokens = record.get("tokens") if isinstance(record, dict) else None
    if not isinstance(tokens, list) or not all(isinstance(entry, dict) for entry in tokens):
        raise OptionError(f"{where}: 'tokens' must be a list of `- name: …` with `token: …`")
    check_known(map(str, record), ("tokens",), where)
    return tuple(
        _token(entry, f"{where}, token {number}") for number, entry in enumerate(tokens, 1)
    )


def _token(record: Mapping[Any, Any], where: str) -> BearerToken:
    check_known(map(str, record), _KEYS, where)
    keys = [key for key in ("token", "sha256") if record.get(key) is not None]
    if len(keys) != 1:
        raise OptionError(f"{where}: give either 'token' or 'sha256'")
    value = record[keys[0]]
    if not isinstance(value, str):
        # YAML reads 0123 as the number 83, and yes as true.
        raise OptionError(f"{where}: '{keys[0]}' must be a string; put it in quotes")
    value = value.strip()
    if keys[0] == "token":
        token_digest = token_of(value).digest
    elif _DIGEST.fullmatch(value.lower()):
        token_digest = bytes.fromhex(value)
    else:
        raise OptionError(f"{where}: 'sha256' must be 64 hexadecimal digits, as `sha256sum` prints")
    acts = frozenset(
        choice(f"{where}: acts", act, ACTS) for act in _texts(record, "acts", (READ, SQL), where)
    )
    views = _texts(record, "views", ("*",), where)
    return BearerToken(token_digest, Scope(str(record.get("name", "token")), views, acts))


def _texts(
    record: Mapping[Any, Any], key: str, default: tuple[str, ...], where: str
) -> tuple[str, ...]:
    value = record.get(key)
    if value is None:
        return default
    if not isinstance(value, list) or not all(isinstance(entry, str) for entry in value):
        raise OptionError(f"{where}: '{key}' must be a list of strings, such as {list(default)}")
    return tuple(value)
