"""Describes a server and a table of it, and checks whether they can be followed."""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from streamhouse.close_matches import nearest
from streamhouse.errors import ConnectError, NotSyncedError, StreamhouseError, TableError
from streamhouse.mysql.connection import Session, global_variables
from streamhouse.mysql.foreign_keys import ForeignKey, unlogged_foreign_keys
from streamhouse.mysql.metadata import OF_TABLES, TableNames, metadata
from streamhouse.mysql.options import MySqlOptions
from streamhouse.mysql.pending_commits import counts_commits
from streamhouse.mysql.position import BinlogPosition
from streamhouse.mysql.requirements import VARIABLES, server_requirements
from streamhouse.mysql.values.types import MySqlColumn, quote

COLUMNS = f"""
SELECT table_schema, table_name,
  column_name, data_type, column_type, is_nullable, numeric_precision, numeric_scale,
  datetime_precision, character_octet_length, character_set_name, collation_name, extra,
  column_comment
FROM information_schema.columns
WHERE {OF_TABLES} ORDER BY table_schema, table_name, ordinal_position
"""
PRIMARY = "PRIMARY"
"""The name of the index of a primary key."""
KEYS = f"""
SELECT table_schema, table_name, index_name, column_name, sub_part
FROM information_schema.statistics
WHERE non_unique = 0 AND (index_type = 'BTREE' OR index_name = 'PRIMARY') AND {OF_TABLES}
ORDER BY table_schema, table_name, index_name, seq_in_index
"""
TABLES = f"""
SELECT table_schema, table_name,
  table_type, engine, table_collation, table_rows, avg_row_length, table_comment
FROM information_schema.tables WHERE {OF_TABLES}
"""
"""The statements of `metadata` whose rows `TableFacts` has."""
ENGINES = ("innodb", "myisam", "aria", "memory", "rocksdb", "tokudb")
"""Storage engines that log each changed row in the server's binlog."""
_EXTRA = re.compile(r"auto_increment|(?:virtual|stored|persistent) generated")


SYSTEM_DATABASES = frozenset({"information_schema", "mysql", "performance_schema", "sys"})
"""The server's own databases, whose tables are never followed."""


@dataclass(frozen=True)
class Server:
    """The kind of a server: MariaDB or MySQL, and the statement that shows its binlog position.

    `ignores_case`: it ignores the case of names of databases and tables (`lower_case_table_names`
    is not 0). `logs_names`: its TABLE_MAP events have the names of columns (`binlog_row_metadata`
    is FULL).
    """

    mariadb: bool
    status_statement: str
    ignores_case: bool = False
    logs_names: bool = True

    def position(self, session: Session) -> BinlogPosition:
        """The end of the binlog now, which is the end of a transaction."""
        rows = session.rows(self.status_statement)
        return BinlogPosition(rows[0][0], int(rows[0][1]))

    def gtids(self, session: Session, position: BinlogPosition) -> str | None:
        """The GTIDs of the transactions before a position; '' for none, None if not known.

        MySQL reports them for the end of its binlog only, and only if each transaction has one.
        """
        if not self.mariadb:
            if not counts_commits(session):
                return None
            file, pos, _, _, executed = session.rows(self.status_statement)[0][:5]
            known = BinlogPosition(file, int(pos)) == position
            return "".join(str(executed or "").split()) if known else None
        last = str(session.rows("SELECT @@GLOBAL.gtid_binlog_pos")[0][0] or "")
        if self.position(session) == position:
            return last
        # Slower: the server reads its binlog file up to the position.
        arguments = (position.file, position.pos)
        found = session.rows("SELECT BINLOG_GTID_POS(%s, %s)", arguments)[0][0]
        return None if found is None else str(found)


class Size(NamedTuple):
    """The number of rows, and the average bytes of a row; 0 if that is not known."""

    rows: int = 0
    row_bytes: int = 0


@dataclass(frozen=True)
class TableDefinition:
    """A table as of a position of the binlog.

    `columns`: none if they are not known. `charset`: of new text columns; None if that is not
    known. `consistent`: a transaction sees the table as of one point in time. `index`: the index of
    `key`, which is the primary key, or else a unique key without NULLs. `size`: the server's
    estimate. `hidden_in`: the sessions in which a temporary table has the table's name, each as the
    binlog file where that was created, and the thread. `foreign_keys`: those that change its rows
    without row events.
    """

    database: str
    name: str
    columns: tuple[MySqlColumn, ...] = ()
    key: tuple[MySqlColumn, ...] = ()
    charset: str | None = None
    consistent: bool = True
    index: str = PRIMARY
    size: Size = field(default=Size(), compare=False)
    hidden_in: tuple[tuple[str, int], ...] = ()
    foreign_keys: tuple[ForeignKey, ...] = ()

    @property
    def full_name(self) -> str:
        return f"{self.database}.{self.name}"


def check_server(session: Session, options: MySqlOptions) -> Server:
    """Raise `ConnectError` with the setting to change if the server's binlog cannot be read."""
    version = str(session.rows("SELECT VERSION()")[0][0])
    variables = global_variables(session, *VARIABLES)
    for requirement in server_requirements(session, options, variables):
        if requirement.status == "missing":
            raise ConnectError(requirement.error)
    mariadb = "mariadb" in version.lower()
    statement = _status_statement(version, mariadb)
    if not session.rows(statement):
        raise ConnectError(f"MySQL at {options.address} has no binlog; set log-bin = binlog")
    ignores_case = variables.get("lower_case_table_names", "0") != "0"
    logs_names = variables.get("binlog_row_metadata", "NO_LOG").upper() == "FULL"
    return Server(mariadb, statement, ignores_case, logs_names)


def check_binlog_filter(session: Session, server: Server, options: MySqlOptions) -> None:
    """Raise `TableError` if the server leaves the table's database out of its binlog."""
    _, _, only, ignored = (
        _text(value or "") for value in session.rows(server.status_statement)[0][:4]
    )
    logged = [name for name in only.split(",") if name]
    if options.database in ignored.split(","):
        raise TableError(
            f"MySQL at {options.address} does not log changes of database '{options.database}' "
            f"(binlog-ignore-db = {ignored}), so they cannot be followed; remove the setting and "
            "restart the server"
        )
    if logged and options.database not in logged:
        raise TableError(
            f"MySQL at {options.address} logs only changes of database {only} (binlog-do-db), so "
            f"those of '{options.database}' cannot be followed; add it and restart the server"
        )


def _status_statement(version: str, mariadb: bool) -> str:
    major, minor = (int(part) for part in version.split(".")[:2])
    if not mariadb and (major, minor) >= (8, 2):
        return "SHOW BINARY LOG STATUS"
    return "SHOW MASTER STATUS"


def load_table(session: Session, options: MySqlOptions) -> TableDefinition:
    """Load the table's columns and its key: the primary key, else a unique one without NULLs.

    Raises `TableError` if the table is missing, naming the most similar one, or has no usable key.
    """
    found = facts_of(session, [(options.database, options.table)])
    if not found or not found[0].columns:
        raise missing_table(session, options)
    return found[0].definition()


class TableFacts(NamedTuple):
    """The rows of `TABLES`, `COLUMNS` and `KEYS` about a table, without its names."""

    names: TableNames
    facts: Sequence[Any]
    columns: Sequence[tuple[Any, ...]]
    keys: Sequence[tuple[Any, ...]]
    foreign_keys: tuple[ForeignKey, ...]

    def definition(self) -> TableDefinition:
        """Raises `TableError` unless all changes but those of foreign keys are logged as rows."""
        kind, engine, collation, rows, row_bytes, _ = self.facts
        check_logged(".".join(self.names), kind, engine)
        columns = tuple(column_of(row) for row in self.columns)
        index, key = key_of(".".join(self.names), columns, self.keys)
        charset = None if collation is None else str(collation).partition("_")[0]
        size = Size(int(rows or 0), int(row_bytes or 0))
        # A transaction sees a table of InnoDB as of one point in time.
        consistent = str(engine).lower() == "innodb"
        return TableDefinition(
            *self.names, columns, key, charset, consistent, index, size,
            foreign_keys=self.foreign_keys,
        )  # fmt: skip


def facts_of(session: Session, tables: Collection[TableNames]) -> list[TableFacts]:
    """The facts of those tables that exist, in the order of their names."""
    if not tables:
        return []
    facts, columns, keys = metadata(session, [TABLES, COLUMNS, KEYS], tables)
    there = [names for names in sorted(tables) if names in facts]
    foreign_keys = unlogged_foreign_keys(session, there)
    return [
        TableFacts(
            names,
            facts[names][0],
            columns.get(names, ()),
            keys.get(names, ()),
            foreign_keys.get(names, ()),
        )
        for names in there
    ]


def key_of(
    table: str, columns: Sequence[MySqlColumn], parts: Sequence[tuple[Any, ...]]
) -> tuple[str, tuple[MySqlColumn, ...]]:
    """The index of the key, and its columns; of several, the one with the fewest columns.

    `parts`: the columns of unique indexes, each as the name of the index, the name of the column
    and the length of a prefix. Returns no columns if there is no key.
    """
    by_name = {column.name: column for column in columns}
    indexes: dict[str, list[tuple[MySqlColumn | None, Any]]] = {}
    for index, name, part in parts:
        # A functional index has parts that are no columns.
        indexes.setdefault(str(index), []).append((by_name.get(str(name)), part))
    for column, part in indexes.get(PRIMARY, ()):
        if column is not None and part is not None:
            raise TableError(
                f"MySQL table {table}: its primary key has only a prefix of column "
                f"'{column.name}', which is not supported; use the whole column as the key"
            )
    usable = []
    for index, own in indexes.items():
        key = [column for column, part in own if column is not None and part is None]
        if len(key) == len(own) and not any(column.nullable for column in key):
            usable.append((index != PRIMARY, len(key), index, tuple(key)))
    if not usable:
        return PRIMARY, ()
    _, _, found, chosen = min(usable, key=lambda row: row[:3])
    return found, chosen


def add_key(table: TableDefinition) -> str:
    """How to add a primary key to a table without one; for messages."""
    # MariaDB and MySQL have invisible columns, so that statements need not know of it.
    return (
        f"add a primary key, such as ALTER TABLE {quote(table.database)}.{quote(table.name)} ADD "
        "COLUMN row_id BIGINT NOT NULL AUTO_INCREMENT INVISIBLE PRIMARY KEY"
    )


def check_key_exists(table: TableDefinition) -> None:
    """Raise `NotSyncedError` if a table of a sync has no key."""
    if not table.key:
        raise NotSyncedError(
            f"MySQL table {table.full_name} has no primary key, and no unique key of NOT NULL "
            f"columns, which a sync needs; {add_key(table)}, or declare the table in a script"
        )


def check_logged(table: str, kind: str, engine: str | None) -> None:
    """Raise `TableError` unless all changes but those of foreign keys are logged as rows."""
    if kind in ("VIEW", "SYSTEM VIEW"):
        raise NotSyncedError(
            f"MySQL table {table} is a view, which has no changes of its own in the binlog; "
            "follow its base tables, and write the view's query in the script"
        )
    if kind == "SYSTEM VERSIONED":
        raise TableError(
            f"MySQL table {table} is system-versioned, which is not supported: its history "
            "changes without row events; ALTER TABLE … DROP SYSTEM VERSIONING, or follow another "
            "table"
        )
    if kind == "BASE TABLE" and engine is None:
        raise TableError(
            f"MySQL table {table} cannot be opened by the server itself: CHECK TABLE says why; "
            "repair or exclude it"
        )
    if kind == "BASE TABLE" and str(engine).lower() not in ENGINES:
        raise TableError(
            f"MySQL table {table} has the storage engine {engine}, which is not supported: "
            "the binlog may lack changes of its rows; use InnoDB"
        )


def load_columns(session: Session, options: MySqlOptions) -> tuple[MySqlColumn, ...]:
    """The columns of a table or view; `TableError` with the most similar name if it is missing."""
    names = (options.database, options.table)
    (found,) = metadata(session, [COLUMNS], [names])
    if not found:
        raise missing_table(session, options)
    return tuple(column_of(row) for row in found[names])


def column_of(row: Sequence[Any]) -> MySqlColumn:
    """The column that a row of `COLUMNS` describes, without the names of the table."""
    name, data_type, column_type, nullable, precision, scale, fraction = row[:7]
    octets, charset, order, extra = row[7:11]
    found = _EXTRA.search(str(extra).lower())
    return MySqlColumn(
        name=name,
        data_type=data_type.lower(),
        column_type=_text(column_type),
        nullable=nullable == "YES",
        precision=int(precision or 0),
        scale=int(scale or 0),
        fraction=int(fraction or 0),
        length=int(octets or 0),
        charset=charset,
        collation=order,
        extra="" if found is None else found[0].rpartition(" ")[2],
    )


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def missing_table(session: Session, options: MySqlOptions) -> StreamhouseError:
    """The error of a table that the server does not have, with the most similar name."""
    databases = [str(row[0]) for row in session.rows("SHOW DATABASES")]
    if options.database not in databases:
        own = [name for name in databases if name not in SYSTEM_DATABASES]
        hint = nearest(options.database, own)
        return TableError(
            f"MySQL at {options.address} has no database '{options.database}' that user "
            f"'{options.username}' can see; {hint}"
        )
    tables = session.rows(
        "SELECT table_name FROM information_schema.tables WHERE table_schema = %s",
        (options.database,),
    )
    hint = nearest(options.table, [str(row[0]) for row in tables])
    return TableError(
        f"MySQL database '{options.database}' at {options.address} has no table "
        f"'{options.table}' that user '{options.username}' can see; {hint}"
    )
