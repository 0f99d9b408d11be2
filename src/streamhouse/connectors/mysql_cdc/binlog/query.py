"""Decodes QUERY and EXECUTE_LOAD_QUERY events: a statement and the session that ran it."""

import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pymysql.charset import charset_by_id

from streamhouse.connectors.mysql_cdc.binlog.format.events import (
    EXECUTE_LOAD_QUERY,
    HEADER,
    QUERY,
    query_of,
)
from streamhouse.connectors.mysql_cdc.binlog.sql.effects import EffectKind, Effects, effects_of
from streamhouse.connectors.mysql_cdc.binlog.sql.tokens import (
    Kind,
    LexerOptions,
    TableName,
    Token,
    UnclearStatement,
    tokens,
)

_TRANSACTION_CONTROL = frozenset({"BEGIN", "COMMIT", "ROLLBACK"})
_HEAD = struct.Struct("<IIBHH")
_LOAD_HEAD_BYTES = 13
_SQL_MODE, _CHARSET, _UPDATED_DATABASES, _PHASE = 1, 4, 12, 130
_START_ALTER, _COMMIT_ALTER, _ROLLBACK_ALTER = 2, 4, 8
_ANSI_QUOTES, _NO_BACKSLASHES, _STRICT = 1 << 2, 1 << 20, (1 << 21) | (1 << 22)
_ORACLE, _MAXDB = 1 << 9, 1 << 12
_FIXED = {0: 4, 1: 8, 3: 4, 4: 6, 7: 2, 8: 2, 9: 8, 10: 4, 13: 3, 128: 3, 129: 8}
"""The bytes of the status variables of a fixed size, by their codes."""
_TEXTS = {2: (1, 1), 5: (1, 0), 6: (1, 0), 11: (2, 0)}
"""How many texts other variables have, and how many bytes follow each."""
_TOO_MANY_DATABASES = 254
_SHOWN = 160
_SPACED = re.compile(r"\s*([.,()=])\s*")


@dataclass(frozen=True)
class Statement:
    """A statement as it was logged.

    `text`: decoded by the session's character set. `generated_text`: decoded by UTF-8, which
    servers use for statements that they write themselves; None if it is the same. `thread`: the
    session's id. `strict`: values that do not fit are errors. `written`: the databases that it may
    have changed; None if the server does not log them. `without_effect`: it was rolled back, or it
    is the first of two events of an ALTER TABLE (MariaDB's `binlog_alter_two_phase`).
    `other_types`: the SQL mode gives names of types another meaning, such as DATETIME for DATE.
    `ignores_case`: the server, or who asks, ignores the case of names of tables.
    """

    database: str
    text: str
    lexis: LexerOptions
    generated_text: str | None = None
    thread: int = 0
    strict: bool = False
    written: frozenset[str] | None = None
    without_effect: bool = False
    other_types: bool = False
    ignores_case: bool = False

    @cached_property
    def readings(self) -> tuple[list[Token], ...]:
        """The tokens of the statement, for each way to decode its text."""
        texts = [self.text, *([] if self.generated_text is None else [self.generated_text])]
        return tuple(tokens(text, self.lexis) for text in texts)

    @cached_property
    def effects(self) -> list[Effects | None]:
        """Its effects, for each reading; None for a definition statement of an unknown form."""
        if self.without_effect:
            return [Effects()] * len(self.readings)
        return [self._effects(found) for found in self.readings]

    def _effects(self, found: Sequence[Token]) -> Effects | None:
        try:
            return effects_of(found, self.database, self.ignores_case)
        except UnclearStatement:
            return None

    def concerns(self, name: TableName) -> bool:
        """Whether the statement defines, alters, fills or drops the table, or may do so."""
        return any(
            self._is_unclear(found, name) if effects is None else bool(effects.on(name))
            for effects, found in zip(self.effects, self.readings, strict=True)
        )

    def hides(self, name: TableName) -> bool:
        """Whether the statement creates or drops a temporary table of this name.

        While that exists, the session's statements are about it, not about the table.
        """
        return any(one is not None and name in one.created + one.dropped for one in self.effects)

    def is_about(self, name: TableName) -> bool:
        """Whether the statement is about the table, or about a temporary one of its name."""
        return self.concerns(name) or self.hides(name)

    def creates(self, name: TableName) -> bool:
        """Whether the statement creates the table, and does nothing else to it."""
        return all(
            effects is not None
            and {effect.what for effect in effects.on(name)} == {EffectKind.CREATED}
            for effects in self.effects
        )

    def may_write(self, name: TableName) -> bool:
        """Whether the statement concerns the table or temporary tables, or may change its rows."""
        return self.concerns(name) or any(
            one is not None and (one.writes or one.created or one.dropped) for one in self.effects
        )

    def _is_unclear(self, found: Sequence[Token], name: TableName) -> bool:
        # A string may be a statement, or a name if the SQL mode is not known.
        fold = str.lower if self.ignores_case else str
        return any(
            fold(token.text) in name
            or (token.kind is Kind.STRING and str(name.name) in fold(token.text))
            for token in found
        )

    def __str__(self) -> str:
        """The statement without comments and strings, which may contain secrets; shortened."""
        quote = '"' if self.lexis.ansi_quotes else "`"
        parts = [
            f"{quote}{text}{quote}" if kind is Kind.NAME else "…" if kind is Kind.STRING else text
            for kind, text in self.readings[0]
        ]
        line = _SPACED.sub(r"\1", " ".join(parts)).replace(",", ", ")
        return line if len(line) <= _SHOWN else f"{line[: _SHOWN - 1]}…"


def statement_of(
    kind: int, data: bytes, at: int, end: int, mariadb: bool, ignores_case: bool
) -> Statement | None:
    """The statement of the event at bytes `at` to `end` (exclusive), without its checksum.

    None for one that begins or ends a transaction, as nearly every transaction has them.
    """
    if kind == QUERY and query_of(data, at, end)[1] in _TRANSACTION_CONTROL:
        return None
    thread, _, size, _, status = _HEAD.unpack_from(data, at + HEADER.size)
    start = at + HEADER.size + _HEAD.size
    if kind == EXECUTE_LOAD_QUERY:
        start += _LOAD_HEAD_BYTES
    variables = _variables(data, start, start + status)
    start += status
    database = data[start : start + size].decode("utf-8", "replace")
    raw = data[start + size + 1 : end]
    mode = int.from_bytes(variables.get(_SQL_MODE, b""), "little")
    codec = _codec(int.from_bytes(variables.get(_CHARSET, b"")[:2], "little"))
    text, generated = _decoded(raw, codec)
    odd = {char for char in text if not char.isascii() and char.isspace()}
    blank = "" if codec in ("utf-8", None) else "".join(sorted(odd))
    return Statement(
        database,
        text,
        LexerOptions(bool(mode & _ANSI_QUOTES), not mode & _NO_BACKSLASHES, mariadb, blank),
        generated,
        thread,
        bool(mode & _STRICT),
        _databases(variables.get(_UPDATED_DATABASES)),
        bool(variables.get(_PHASE, b"\0")[0] & (_START_ALTER | _ROLLBACK_ALTER)),
        bool(mode & (_ORACLE | _MAXDB)),
        ignores_case,
    )


def _variables(data: bytes, at: int, end: int) -> dict[int, bytes]:
    """The status variables that are in `data`, up to the first unknown one."""
    found: dict[int, bytes] = {}
    while at < end:
        code, at = data[at], at + 1
        start = at
        if code in _FIXED:
            at += _FIXED[code]
        elif code in _TEXTS:
            count, extra = _TEXTS[code]
            for _ in range(count):
                at += 1 + data[at] + extra
        elif code == _PHASE:
            at += 9 if data[at] & (_COMMIT_ALTER | _ROLLBACK_ALTER) else 1
        elif code == _UPDATED_DATABASES:
            names = 0 if data[at] == _TOO_MANY_DATABASES else data[at]
            at += 1
            for _ in range(names):
                at = data.index(b"\0", at) + 1
        else:
            break
        found[code] = data[start:at]
    return found


def _databases(raw: bytes | None) -> frozenset[str] | None:
    if raw is None or raw[0] == _TOO_MANY_DATABASES:
        return None
    return frozenset(name.decode("utf-8", "replace") for name in raw[1:].split(b"\0")[:-1])


def _codec(charset: int) -> str | None:
    """Python's codec for a collation's number; None if it is unknown."""
    try:
        find: Any = charset_by_id
        name = str(find(charset).encoding)
        "".encode(name)
    except LookupError:
        return None
    return "utf-8" if name == "utf8" else name


def _decoded(raw: bytes, codec: str | None) -> tuple[str, str | None]:
    text = raw.decode(codec or "utf-8", "replace")
    if codec == "utf-8" or raw.isascii():
        return text, None
    try:
        utf8 = raw.decode()
    except UnicodeDecodeError:
        return text, None
    return text, None if utf8 == text else utf8
