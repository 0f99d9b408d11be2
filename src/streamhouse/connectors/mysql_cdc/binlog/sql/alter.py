"""Parses an ALTER TABLE into changes of columns, keys and rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from streamhouse.connectors.mysql_cdc.binlog.sql.tokens import (
    Kind,
    Token,
    TokenCursor,
    UnclearStatement,
    split,
)
from streamhouse.connectors.mysql_cdc.binlog.sql.types import ColumnSpec, column_spec


@dataclass(frozen=True)
class ColumnAdded:
    """A new column, after the column `after`; empty: it is the first column; None: the last.

    `conditional`: only if the table has no column of this name before the statement.
    """

    spec: ColumnSpec
    after: str | None = None
    conditional: bool = False


@dataclass(frozen=True)
class ColumnDropped:
    """A column that is dropped."""

    name: str


@dataclass(frozen=True)
class ColumnChanged:
    """A column with a new definition, and perhaps a new name and position.

    `after`: as in `ColumnAdded`, but None if the column stays where it is.
    """

    old: str
    spec: ColumnSpec
    after: str | None = None


@dataclass(frozen=True)
class ColumnRenamed:
    """A column with a new name."""

    old: str
    new: str


@dataclass(frozen=True)
class KeyDropped:
    """The primary key is dropped."""


@dataclass(frozen=True)
class IndexDropped:
    """An index with this name, or a constraint, is dropped."""

    name: str


@dataclass(frozen=True)
class KeyAdded:
    """A new primary key."""

    columns: tuple[str, ...]


@dataclass(frozen=True)
class CharsetConverted:
    """All text columns get this character set, which is also the table's default; None: unclear."""

    charset: str | None


@dataclass(frozen=True)
class DefaultCharset:
    """The table gets this default character set; None: unclear."""

    charset: str | None


@dataclass(frozen=True)
class RowsChanged:
    """Rows may change without row events; `how` completes "it …"."""

    how: str


TableChange: TypeAlias = (
    ColumnAdded | ColumnDropped | ColumnChanged | ColumnRenamed | KeyDropped | IndexDropped
    | KeyAdded | CharsetConverted | DefaultCharset | RowsChanged
)  # fmt: skip

_INDEXES = ("INDEX", "KEY", "FULLTEXT", "SPATIAL", "UNIQUE", "VECTOR")
_PARTITION_ROWS = ("TRUNCATE", "EXCHANGE", "REPAIR", "DISCARD", "IMPORT")
_WITHOUT_EFFECT = frozenset(
    "ALGORITHM ANALYZE CHECK COALESCE DISABLE ENABLE FORCE LOCK NOWAIT OPTIMIZE ORDER PARTITION "
    "REBUILD REMOVE REORGANIZE SECONDARY_LOAD SECONDARY_UNLOAD UPGRADE VALIDATION".split()
)
_ENGINES = frozenset("INNODB INNOBASE MYISAM ARIA ROCKSDB MYROCKS TOKUDB XTRADB".split())
_VERSIONING = "adds, drops or changes system versioning, whose history rows are not followed"
_CASCADE = "adds a foreign key that changes rows with those of another table, without row events"


def changes_of(
    specs: Sequence[Sequence[Token]], charset: str | None, mariadb: bool
) -> list[TableChange]:
    """The changes of an ALTER TABLE, in order; `charset`: the table's default one.

    Raises `UnclearStatement` for a part of an unknown form.
    """
    changes = _in_order(specs, charset, mariadb)
    for change in changes:
        if isinstance(change, CharsetConverted | DefaultCharset):
            charset = change.charset
    # The table's new character set is the one of columns in parts before it, too.
    return _in_order(specs, charset, mariadb)


def _in_order(
    specs: Sequence[Sequence[Token]], charset: str | None, mariadb: bool
) -> list[TableChange]:
    changes: list[TableChange] = []
    ordering = partitions = False
    for spec in specs:
        if partitions or (ordering and _is_plain_column(spec)):
            continue
        # More names of partitions, as DROP PARTITION p0, p1 has them, end the statement.
        partitions = [token.kind is Kind.WORD and token.text.upper() for token in spec[1:2]] == [
            "PARTITION"
        ]
        ordering = [token.text.upper() for token in spec[:2]] == ["ORDER", "BY"]
        changes += _changes(spec, charset, mariadb)
    return changes


def _is_plain_column(spec: Sequence[Token]) -> bool:
    return len(spec) == 1 or (len(spec) == 2 and spec[1].text.upper() in ("ASC", "DESC"))


def _changes(spec: Sequence[Token], charset: str | None, mariadb: bool) -> list[TableChange]:
    uppers = [token.text.upper() if token.kind is Kind.WORD else "" for token in spec]
    if _has(uppers, "SYSTEM", "VERSIONING") or "SYSTEM_TIME" in uppers:
        return [RowsChanged(_VERSIONING)]
    if cascades(spec):
        return [RowsChanged(_CASCADE)]
    words = TokenCursor(spec)
    if words.skip("ADD"):
        return _added(words, charset, mariadb)
    if words.skip("DROP"):
        return _dropped(words)
    if words.word() in ("CHANGE", "MODIFY"):
        return _changed(words, charset, mariadb)
    if words.skip("RENAME"):
        return _renamed(words)
    if words.word() in ("CONVERT", *_PARTITION_ROWS):
        return _converted(words)
    if words.skip("ALTER"):
        return []
    return _options(words)


def cascades(spec: Sequence[Token]) -> bool:
    """Whether a foreign key in the definition changes rows of its own table."""
    uppers = [token.text.upper() if token.kind is Kind.WORD else "" for token in spec]
    return any(
        _has(uppers, "ON", event, *action)
        for event in ("DELETE", "UPDATE")
        for action in (("CASCADE",), ("SET", "NULL"), ("SET", "DEFAULT"))
    )


def _has(uppers: Sequence[str], *words: str) -> bool:
    size = len(words)
    return any(tuple(uppers[at : at + size]) == words for at in range(len(uppers) - size + 1))


def _added(words: TokenCursor, charset: str | None, mariadb: bool) -> list[TableChange]:
    if words.word() in (*_INDEXES, "PARTITION", "CHECK", "FOREIGN"):
        return []
    if words.word() == "PERIOD" and words.word(1) == "FOR":
        return []
    if words.skip("CONSTRAINT"):
        if words.word() not in ("PRIMARY", "UNIQUE", "FOREIGN", "CHECK"):
            words.name()
        if words.word() != "PRIMARY":
            return []
    if words.skip("PRIMARY", "KEY"):
        while words.word() != "(":
            words.take()
        columns = split(words.parenthesized())
        return [KeyAdded(tuple(column[0].text.lower() for column in columns if column))]
    words.skip("COLUMN")
    conditional = words.skip("IF", "NOT", "EXISTS")
    if words.word() != "(":
        return [_new_column(words, charset, mariadb, conditional)]
    parts = [TokenCursor(part) for part in split(words.parenthesized())]
    return [
        change
        for part in parts
        for change in (
            _added(part, charset, mariadb)
            if part.word() in (*_INDEXES, "PRIMARY", "CONSTRAINT", "FOREIGN", "CHECK")
            else [_new_column(part, charset, mariadb, conditional)]
        )
    ]


def _new_column(
    words: TokenCursor, charset: str | None, mariadb: bool, conditional: bool
) -> ColumnAdded:
    name = words.name()
    after, rest = _position(words.rest())
    return ColumnAdded(column_spec(name, TokenCursor(rest), charset, mariadb), after, conditional)


def _position(rest: list[Token]) -> tuple[str | None, list[Token]]:
    """The position of a column (`after` of `ColumnAdded`), and its definition without that."""
    if rest and rest[-1].kind is Kind.WORD and rest[-1].text.upper() == "FIRST":
        return "", rest[:-1]
    if len(rest) > 1 and rest[-2].kind is Kind.WORD and rest[-2].text.upper() == "AFTER":
        return rest[-1].text.lower(), rest[:-2]
    return None, rest


def _dropped(words: TokenCursor) -> list[TableChange]:
    if words.skip("PRIMARY", "KEY"):
        return [KeyDropped()]
    if words.skip("PARTITION"):
        return [RowsChanged("drops a partition with its rows")]
    if words.word() in ("INDEX", "KEY", "CONSTRAINT"):
        words.at += 1
        words.skip("IF", "EXISTS")
        name = words.name()
        return [KeyDropped() if name.upper() == "PRIMARY" else IndexDropped(name)]
    if words.skip("FOREIGN", "KEY") or words.skip("CHECK"):
        return []
    if words.word() == "PERIOD" and words.word(1) == "FOR":
        return []
    words.skip("COLUMN")
    words.skip("IF", "EXISTS")
    return [ColumnDropped(words.name().lower())]


def _changed(words: TokenCursor, charset: str | None, mariadb: bool) -> list[TableChange]:
    renames = words.skip("CHANGE")
    if not renames:
        words.expect("MODIFY")
    words.skip("COLUMN")
    words.skip("IF", "EXISTS")
    if words.word() == "(":
        raise UnclearStatement  # MODIFY (…) of MariaDB's Oracle mode
    old = words.name()
    name = words.name() if renames else old
    after, rest = _position(words.rest())
    spec = column_spec(name, TokenCursor(rest), charset, mariadb)
    return [ColumnChanged(old.lower(), spec, after)]


def _renamed(words: TokenCursor) -> list[TableChange]:
    if words.skip("COLUMN"):
        words.skip("IF", "EXISTS")
        old = words.name()
        words.expect("TO")
        return [ColumnRenamed(old.lower(), words.name())]
    if words.word() in ("INDEX", "KEY"):
        return []
    return [RowsChanged("renames the table")]


def _converted(words: TokenCursor) -> list[TableChange]:
    if words.skip("CONVERT", "TO"):
        if not (words.skip("CHARACTER", "SET") or words.skip("CHARSET")):
            raise UnclearStatement
        charset = words.take().text.lower()
        return [CharsetConverted(None if charset == "default" else _charset(charset))]
    if words.word() == "CONVERT":
        return [RowsChanged("moves rows between the table and another one")]
    return [RowsChanged("changes the rows of the table or of a partition")]


def _charset(name: str) -> str | None:
    return None if name == "default" else "utf8mb3" if name == "utf8" else name


def _options(words: TokenCursor) -> list[TableChange]:
    """Options of the table, perhaps several without commas between them."""
    if words.word() in _WITHOUT_EFFECT or words.word() in ("WITH", "WITHOUT"):
        return []
    changes: list[TableChange] = []
    while words:
        words.skip("DEFAULT")
        option = words.take().text.upper()
        if option == "PARTITION":
            return changes
        if option in ("CHARACTER", "CHAR"):
            words.expect("SET")
        words.skip("=")
        if words.word() == "(":
            words.parenthesized()
            continue
        value = words.take().text
        if option in ("CHARSET", "CHARACTER", "CHAR"):
            changes.append(DefaultCharset(_charset(value.lower())))
        elif option == "COLLATE":
            changes.append(DefaultCharset(_charset(value.lower().partition("_")[0])))
        elif option in ("ENGINE", "TYPE") and value.upper() not in _ENGINES:
            changes.append(RowsChanged(f"moves the rows to the storage engine {value}"))
        elif option == "SEQUENCE":
            raise UnclearStatement
    return changes
