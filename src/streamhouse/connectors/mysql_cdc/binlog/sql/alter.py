"""Parses an ALTER TABLE into changes of columns, keys and rows."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from streamhouse.connectors.mysql_cdc.binlog.sql.tokens import (
    Kind,
    Token,
    TokenCursor,
    UnclearStatement,
    split,
)
from streamhouse.connectors.mysql_cdc.binlog.sql.types import ColumnSpec, column_spec


@dataclass(frozen=True)
class ColumnChange:
    """What an ALTER TABLE does to one column.

    `old`: its name before, in lower case; None: it is added. `name`: its name after; None: it is
    dropped. `spec`: its new definition; None: it keeps its own. `after`: the column before it;
    empty: it is the first column; None: it stays where it is, or is added as the last.
    `conditional`: it is only added if the table has no column of this name before the statement.
    """

    old: str | None
    name: str | None
    spec: ColumnSpec | None = None
    after: str | None = None
    conditional: bool = False


@dataclass
class Alteration:
    """The parts of an ALTER TABLE, each in order.

    `rows`: how rows may change without row events; completes "it …". `dropped_indexes`: the names
    of indexes and constraints. `keys`: the columns of a new primary key; None: it is dropped.
    `charsets`: the default character sets that the table gets; `converted`: those to which all of
    its texts are converted, which are among them; None: unclear.
    """

    columns: list[ColumnChange] = field(default_factory=list)
    rows: list[str] = field(default_factory=list)
    dropped_indexes: list[str] = field(default_factory=list)
    keys: list[tuple[str, ...] | None] = field(default_factory=list)
    charsets: list[str | None] = field(default_factory=list)
    converted: list[str | None] = field(default_factory=list)

    @property
    def keeps_columns(self) -> bool:
        """Whether columns, their texts and the primary key stay as they are."""
        return not (self.columns or self.keys or self.charsets)


_INDEXES = ("INDEX", "KEY", "FULLTEXT", "SPATIAL", "UNIQUE", "VECTOR")
_PARTITION_ROWS = ("TRUNCATE", "EXCHANGE", "REPAIR", "DISCARD", "IMPORT")
_WITHOUT_EFFECT = frozenset(
    "ALGORITHM ANALYZE CHECK COALESCE DISABLE ENABLE FORCE LOCK NOWAIT OPTIMIZE ORDER PARTITION "
    "REBUILD REMOVE REORGANIZE SECONDARY_LOAD SECONDARY_UNLOAD UPGRADE VALIDATION".split()
)
_ENGINES = frozenset("INNODB INNOBASE MYISAM ARIA ROCKSDB MYROCKS TOKUDB XTRADB".split())
_VERSIONING = "adds, drops or changes system versioning, whose history rows are not followed"
_CASCADE = "adds a foreign key that changes rows with those of another table, without row events"


def alteration(specs: Sequence[Sequence[Token]], charset: str | None, mariadb: bool) -> Alteration:
    """The parts of an ALTER TABLE; `charset`: the table's default one.

    Raises `UnclearStatement` for a part of an unknown form.
    """
    parser = _Parser(charset, mariadb)
    ordering = partitions = False
    for spec in specs:
        plain = len(spec) == 1 or (len(spec) == 2 and spec[1].text.upper() in ("ASC", "DESC"))
        if partitions or (ordering and plain):
            continue
        # More names of partitions, as DROP PARTITION p0, p1 has them, end the statement.
        partitions = [token.kind is Kind.WORD and token.text.upper() for token in spec[1:2]] == [
            "PARTITION"
        ]
        ordering = [token.text.upper() for token in spec[:2]] == ["ORDER", "BY"]
        parser.take(spec)
    charsets = parser.found.charsets
    if charsets and charsets[-1] != charset:
        # The table's new character set is the one of columns in parts before it, too.
        return alteration(specs, charsets[-1], mariadb)
    return parser.found


def _cascades(uppers: Sequence[str]) -> bool:
    """Whether a foreign key in the definition changes rows of its own table."""
    return any(
        _has(uppers, "ON", event, *action)
        for event in ("DELETE", "UPDATE")
        for action in (("CASCADE",), ("SET", "NULL"), ("SET", "DEFAULT"))
    )


def _has(uppers: Sequence[str], *words: str) -> bool:
    size = len(words)
    return any(tuple(uppers[at : at + size]) == words for at in range(len(uppers) - size + 1))


class _Parser:
    """Adds parts of a statement to `found`; `charset`: the table's default one."""

    def __init__(self, charset: str | None, mariadb: bool) -> None:
        self._charset, self._mariadb = charset, mariadb
        self.found = Alteration()

    def take(self, spec: Sequence[Token]) -> None:
        uppers = [token.text.upper() if token.kind is Kind.WORD else "" for token in spec]
        words = TokenCursor(spec)
        if _has(uppers, "SYSTEM", "VERSIONING") or "SYSTEM_TIME" in uppers:
            self.found.rows.append(_VERSIONING)
        elif _cascades(uppers):
            self.found.rows.append(_CASCADE)
        elif words.skip("ADD"):
            self._add(words)
        elif words.skip("DROP"):
            self._drop(words)
        elif words.word() in ("CHANGE", "MODIFY"):
            self._change(words)
        elif words.skip("RENAME"):
            self._rename(words)
        elif words.word() in ("CONVERT", *_PARTITION_ROWS):
            self._convert(words)
        elif not words.skip("ALTER"):
            self._options(words)

    def _add(self, words: TokenCursor) -> None:
        if words.word() in (*_INDEXES, "PARTITION", "CHECK", "FOREIGN"):
            return
        if words.word() == "PERIOD" and words.word(1) == "FOR":
            return
        if words.skip("CONSTRAINT"):
            if words.word() not in ("PRIMARY", "UNIQUE", "FOREIGN", "CHECK"):
                words.name()
            if words.word() != "PRIMARY":
                return
        if words.skip("PRIMARY", "KEY"):
            while words.word() != "(":
                words.take()
            columns = split(words.parenthesized())
            self.found.keys.append(tuple(one[0].text.lower() for one in columns if one))
            return
        words.skip("COLUMN")
        conditional = words.skip("IF", "NOT", "EXISTS")
        if words.word() != "(":
            self._define(None, words.name(), words, conditional)
            return
        for part in map(TokenCursor, split(words.parenthesized())):
            if part.word() in (*_INDEXES, "PRIMARY", "CONSTRAINT", "FOREIGN", "CHECK"):
                self._add(part)
            else:
                self._define(None, part.name(), part, conditional)

    def _define(
        self, old: str | None, name: str, words: TokenCursor, conditional: bool = False
    ) -> None:
        """Take the definition of a column, and its position."""
        after, rest = _position(words.rest())
        spec = column_spec(name, TokenCursor(rest), self._charset, self._mariadb)
        self.found.columns.append(ColumnChange(old, name, spec, after, conditional))

    def _drop(self, words: TokenCursor) -> None:
        if words.skip("PRIMARY", "KEY"):
            self.found.keys.append(None)
        elif words.skip("PARTITION"):
            self.found.rows.append("drops a partition with its rows")
        elif words.skip_one("INDEX", "KEY", "CONSTRAINT"):
            words.skip("IF", "EXISTS")
            name = words.name()
            if name.upper() == "PRIMARY":
                self.found.keys.append(None)
            else:
                self.found.dropped_indexes.append(name)
        elif not (
            words.skip("FOREIGN", "KEY")
            or words.skip("CHECK")
            or (words.word() == "PERIOD" and words.word(1) == "FOR")
        ):
            words.skip("COLUMN")
            words.skip("IF", "EXISTS")
            self.found.columns.append(ColumnChange(words.name().lower(), None))

    def _change(self, words: TokenCursor) -> None:
        renames = words.skip("CHANGE")
        if not renames:
            words.expect("MODIFY")
        words.skip("COLUMN")
        words.skip("IF", "EXISTS")
        if words.word() == "(":
            raise UnclearStatement  # MODIFY (…) of MariaDB's Oracle mode
        old = words.name()
        self._define(old.lower(), words.name() if renames else old, words)

    def _rename(self, words: TokenCursor) -> None:
        if words.skip("COLUMN"):
            words.skip("IF", "EXISTS")
            old = words.name().lower()
            words.expect("TO")
            self.found.columns.append(ColumnChange(old, words.name()))
        elif words.word() not in ("INDEX", "KEY"):
            self.found.rows.append("renames the table")

    def _convert(self, words: TokenCursor) -> None:
        if words.skip("CONVERT", "TO"):
            if not (words.skip("CHARACTER", "SET") or words.skip("CHARSET")):
                raise UnclearStatement
            charset = _charset(words.take().text)
            self.found.charsets.append(charset)
            self.found.converted.append(charset)
        elif words.word() == "CONVERT":
            self.found.rows.append("moves rows between the table and another one")
        else:
            self.found.rows.append("changes the rows of the table or of a partition")

    def _options(self, words: TokenCursor) -> None:
        """Options of the table, perhaps several without commas between them."""
        if words.word() in _WITHOUT_EFFECT or words.word() in ("WITH", "WITHOUT"):
            return
        while words:
            words.skip("DEFAULT")
            option = words.take().text.upper()
            if option == "PARTITION":
                return
            if option in ("CHARACTER", "CHAR"):
                words.expect("SET")
            words.skip("=")
            if words.word() == "(":
                words.parenthesized()
                continue
            value = words.take().text
            if option in ("CHARSET", "CHARACTER", "CHAR"):
                self.found.charsets.append(_charset(value))
            elif option == "COLLATE":
                self.found.charsets.append(_charset(value.partition("_")[0]))
            elif option in ("ENGINE", "TYPE") and value.upper() not in _ENGINES:
                self.found.rows.append(f"moves the rows to the storage engine {value}")
            elif option == "SEQUENCE":
                raise UnclearStatement


def _position(rest: list[Token]) -> tuple[str | None, list[Token]]:
    """The position of a column (`after` of `ColumnChange`), and its definition without that."""
    if rest and rest[-1].kind is Kind.WORD and rest[-1].text.upper() == "FIRST":
        return "", rest[:-1]
    if len(rest) > 1 and rest[-2].kind is Kind.WORD and rest[-2].text.upper() == "AFTER":
        return rest[-1].text.lower(), rest[:-2]
    return None, rest


def _charset(name: str) -> str | None:
    return {"default": None, "utf8": "utf8mb3"}.get(name.lower(), name.lower())
