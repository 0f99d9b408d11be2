"""Parses a statement to determine its effects on tables.

A statement of an unknown form may change the rows of any table.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from streamhouse.connectors.mysql_cdc.binlog.sql.tokens import (
    Kind,
    TableName,
    Token,
    TokenCursor,
    UnclearStatement,
    outer_words,
    split,
)


class EffectKind(Enum):
    """How a statement affects a table."""

    REPLACED = "replaced"
    """The table, or some of its rows, appear or disappear without row events."""
    ALTERED = "altered"
    CREATED = "created"
    REPAIRED = "repaired"
    """Rows may disappear without row events, if the storage engine repairs tables."""


@dataclass(frozen=True)
class Effect:
    """The effect of a definition statement on one table.

    `specs`: the tokens of each part of an ALTER TABLE, or the definition of a new table. `ignore`:
    rows that do not fit are dropped. After a RENAME TABLE, `old_name` is the name that the table
    called `table` had before, and `new_name` that of the table that was called `table` before.
    """

    what: EffectKind
    table: TableName
    specs: Sequence[Sequence[Token]] = ()
    ignore: bool = False
    old_name: TableName | None = None
    new_name: TableName | None = None


@dataclass(frozen=True)
class Effects:
    """The effects of a statement; those on the definitions of tables are in `tables`.

    `created` and `dropped`: temporary tables. `writes`: it may change rows, and `target` is the one
    table that it writes itself; None: not known.
    """

    tables: tuple[Effect, ...] = ()
    created: tuple[TableName, ...] = ()
    dropped: tuple[TableName, ...] = ()
    writes: bool = False
    target: TableName | None = None

    def on(self, name: TableName) -> list[Effect]:
        """Those on the table, or on its database."""
        whole = TableName(name.database, None)
        return [effect for effect in self.tables if effect.table in (name, whole)]


_NOTHING = Effects()

_HARMLESS = frozenset(
    "ANALYZE BACKUP BEGIN BINLOG CACHE CHANGE CHECK CHECKSUM CLONE COMMIT DEALLOCATE DESC DESCRIBE "
    "EXPLAIN FLUSH GET GRANT HELP INSTALL KILL LOCK OPTIMIZE PREPARE PURGE RELEASE RESET "
    "RESIGNAL RESTART REVOKE ROLLBACK SAVEPOINT SHOW SHUTDOWN SIGNAL SLAVE START STOP UNINSTALL "
    "UNLOCK USE XA".split()
)
"""First words of statements that change no rows."""
_OBJECTS = frozenset(
    "AGGREGATE DEFINER EVENT FUNCTION LOGFILE PACKAGE PROCEDURE RESOURCE ROLE SERVER SQL "
    "TABLESPACE TRIGGER UNDO USER VIEW ALGORITHM INSTANCE SPATIAL_REFERENCE_SYSTEM SPATIAL "
    "PREPARE CATALOG LIBRARY MATERIALIZED".split()
)
"""Words after CREATE, ALTER or DROP for objects without rows."""
_DATABASES = ("DATABASE", "SCHEMA")
_TABLES = ("TABLE", "TABLES")
_INDEX_KINDS = ("UNIQUE", "FULLTEXT", "SPATIAL", "VECTOR", "ONLINE", "OFFLINE", "IGNORE")


def effects_of(found: Sequence[Token], database: str, fold: bool) -> Effects:
    """The effects of a statement; `database`: the session's default one.

    `fold`: names of tables and databases become lower-case. Raises `UnclearStatement` for a
    definition statement of an unknown form.
    """
    words = TokenCursor(found, fold)
    while words.skip(";") or words.skip("("):
        pass
    if words.skip("SET"):
        if not words.skip("STATEMENT"):
            return _NOTHING
        while not words.skip("FOR"):
            words.take()
    verb = words.word()
    if verb in _HARMLESS and not (verb == "BEGIN" and words.word(1) == "NOT"):
        return _NOTHING
    words.at += 1
    if verb in _DEFINING:
        return _DEFINING[verb](words, database)
    target = _written(verb, words, database) if verb in _MODIFIERS else None
    return Effects(writes=True, target=target)


def _drop(words: TokenCursor, database: str) -> Effects:
    temporary = words.skip("TEMPORARY")
    if words.skip_one(*_DATABASES):
        words.skip("IF", "EXISTS")
        dropped = TableName(words.part(), None)
        words.end()
        return _replaced(dropped)
    if words.skip_one(*_TABLES, "SEQUENCE"):
        words.skip("IF", "EXISTS")
        names = _names(words, database)
        _skip_wait(words)
        words.end("RESTRICT", "CASCADE")
        return Effects(dropped=names) if temporary else _replaced(*names)
    words.skip_any(*_INDEX_KINDS)
    if words.skip("INDEX"):
        words.skip("IF", "EXISTS")
        index = words.name()
        words.expect("ON")
        spec = [Token(Kind.WORD, "DROP"), Token(Kind.WORD, "INDEX"), Token(Kind.NAME, index)]
        return Effects((Effect(EffectKind.ALTERED, words.table(database), [spec]),))
    return _object(words)


def _create(words: TokenCursor, database: str) -> Effects:
    replace = words.skip("OR", "REPLACE")
    if words.skip_one(*_DATABASES):
        words.skip("IF", "NOT", "EXISTS")
        name = words.part()
        return _replaced(TableName(name, None)) if replace else _NOTHING
    temporary = words.skip("TEMPORARY")
    if words.skip_one("TABLE", "SEQUENCE"):
        words.skip("IF", "NOT", "EXISTS")
        table = words.table(database)
        rest = words.rest()
        # With a query, whose rows it inserts.
        selects = any(token.kind is Kind.WORD and token.text.upper() == "SELECT" for token in rest)
        fills = selects or not {"TABLE", "VALUES"}.isdisjoint(outer_words(rest))
        if temporary:
            return Effects(created=(table,), writes=fills, target=table)
        what = EffectKind.REPLACED if replace else EffectKind.CREATED
        return Effects((Effect(what, table, [rest]),), writes=fills, target=table)
    ignore = words.word() == "IGNORE"
    start = words.at
    words.skip_any(*_INDEX_KINDS)
    if words.skip("INDEX"):
        words.skip("IF", "NOT", "EXISTS")
        unique = any(token.text.upper() == "UNIQUE" for token in words.tokens[start : words.at])
        while not words.skip("ON"):
            words.take()
        spec = [Token(Kind.WORD, "ADD"), Token(Kind.WORD, "UNIQUE" if unique else "INDEX")]
        return Effects((Effect(EffectKind.ALTERED, words.table(database), [spec], ignore),))
    return _object(words)


def _alter(words: TokenCursor, database: str) -> Effects:
    words.skip_any("ONLINE", "OFFLINE")
    ignore = words.skip("IGNORE")
    if words.skip("TABLE"):
        words.skip("IF", "EXISTS")
        table = words.table(database)
        _skip_wait(words)
        specs = split(words.rest())
        parts = [TokenCursor(spec, words.fold) for spec in specs]
        others = [other for part in parts for other in _other_tables(part, database)]
        altered = Effect(EffectKind.ALTERED, table, specs, ignore)
        return Effects((altered, *(Effect(EffectKind.REPLACED, other) for other in others)))
    if words.word() in (*_DATABASES, "SEQUENCE"):
        return _NOTHING
    return _object(words)


def _other_tables(words: TokenCursor, database: str) -> list[TableName]:
    """The other tables whose rows or name a part of an ALTER TABLE changes."""
    for verb, preposition in (("EXCHANGE", "WITH"), ("CONVERT", "TO")):
        if words.skip(verb, "PARTITION"):
            words.name()
            words.expect(preposition, "TABLE")
            return [words.table(database)]
    if words.skip("CONVERT", "TABLE"):
        return [words.table(database)]
    renamed = renamed_to(words, database)
    return [] if renamed is None else [renamed]


def renamed_to(words: TokenCursor, database: str) -> TableName | None:
    """The new name of the table, if this part of an ALTER TABLE renames it."""
    if not words.skip("RENAME") or words.word() in ("COLUMN", "INDEX", "KEY"):
        return None
    if len(words.tokens) - words.at > 1:
        words.skip_one("TO", "AS", "=")
    return words.table(database)


def _rename(words: TokenCursor, database: str) -> Effects:
    if not words.skip_one(*_TABLES):
        return _object(words)
    words.skip("IF", "EXISTS")
    old_names: dict[TableName, TableName] = {}
    """The name that each table had before, by its new name."""
    mentioned: dict[TableName, None] = {}
    while True:
        old = words.table(database)
        _skip_wait(words)
        words.expect("TO")
        new = words.table(database)
        old_names[new] = old_names.pop(old, old)
        mentioned |= {old: None, new: None}
        if not words.skip(","):
            break
    words.end()
    names = [name for name in mentioned if old_names.get(name) != name]
    new_names = {old: new for new, old in old_names.items()}
    return Effects(
        tuple(
            Effect(
                EffectKind.REPLACED,
                name,
                old_name=old_names.get(name),
                new_name=new_names.get(name),
            )
            for name in names
        )
    )


def _truncate(words: TokenCursor, database: str) -> Effects:
    words.skip("TABLE")
    table = words.table(database)
    _skip_wait(words)
    words.end("DROP", "REUSE", "STORAGE")
    return _replaced(table)


def _repair(words: TokenCursor, database: str) -> Effects:
    words.skip_any("NO_WRITE_TO_BINLOG", "LOCAL")
    if not words.skip_one(*_TABLES):
        return _NOTHING
    names = _names(words, database)
    return Effects(tuple(Effect(EffectKind.REPAIRED, name) for name in names))


def _object(words: TokenCursor) -> Effects:
    if words.word() in _OBJECTS:
        return _NOTHING
    raise UnclearStatement


def _replaced(*names: TableName) -> Effects:
    return Effects(tuple(Effect(EffectKind.REPLACED, name) for name in names))


def _names(words: TokenCursor, database: str) -> tuple[TableName, ...]:
    names = [words.table(database)]
    while words.skip(","):
        names.append(words.table(database))
    return tuple(names)


def _skip_wait(words: TokenCursor) -> None:
    if words.skip("WAIT"):
        words.take()
    words.skip("NOWAIT")


def _written(verb: str, words: TokenCursor, database: str) -> TableName | None:
    """The one table that a statement writes itself; None: several, or it is not known."""
    words.skip_any(*_MODIFIERS[verb])
    try:
        if verb == "DELETE":
            words.expect("FROM")
        while verb == "LOAD" and not words.skip("INTO", "TABLE"):
            words.take()
        table = words.table(database)
    except UnclearStatement:
        return None
    if verb not in ("UPDATE", "DELETE"):
        return table
    rest = words.rest()
    uppers = [token.text.upper() if token.kind is Kind.WORD else "" for token in rest]
    end = "SET" if verb == "UPDATE" else "WHERE"
    tables = rest[: uppers.index(end)] if end in uppers else rest
    several = {"JOIN", "USING"}.intersection(outer_words(tables)) or words.word() in (".", ",")
    joined = verb == "UPDATE" and (Kind.SYMBOL, ",") in tables
    return None if several or joined or (verb == "UPDATE" and "SET" not in uppers) else table


_DEFINING: dict[str, Callable[[TokenCursor, str], Effects]] = {
    "DROP": _drop,
    "CREATE": _create,
    "ALTER": _alter,
    "RENAME": _rename,
    "TRUNCATE": _truncate,
    "REPAIR": _repair,
}
_MODIFIERS = {
    **dict.fromkeys(
        ("INSERT", "REPLACE"), ("LOW_PRIORITY", "DELAYED", "HIGH_PRIORITY", "IGNORE", "INTO")
    ),
    "UPDATE": ("LOW_PRIORITY", "IGNORE"),
    "DELETE": ("LOW_PRIORITY", "QUICK", "IGNORE", "HISTORY"),
    "LOAD": (),
}
"""Words between the first word of a statement that writes a table and the table."""
