"""Foreign keys that change rows of their own table without row events in the binlog.

docs/decisions/195-schema-changes-of-a-sync.md says how a sync follows such tables.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from streamhouse.errors import AlteredTableError, TableError
from streamhouse.mysql.connection import Session, global_variables
from streamhouse.mysql.metadata import OF_TABLES, TableNames, metadata
from streamhouse.mysql.values.types import quote

CASCADE = "CASCADE"
_PASSIVE = ("RESTRICT", "NO ACTION")
_COLUMNS = f"""
SELECT table_schema, table_name, constraint_name, column_name,
  referenced_table_schema, referenced_table_name, referenced_column_name
FROM information_schema.key_column_usage WHERE {OF_TABLES}
ORDER BY table_schema, table_name, constraint_name, ordinal_position
"""
# A user who may only SELECT does not see `information_schema.referential_constraints`.
_RULES = re.compile(
    r"^\s*CONSTRAINT `(.*?)` FOREIGN KEY \(.*\)"
    r"(?: ON DELETE (\w+(?: NULL| ACTION| DEFAULT)?))?"
    r"(?: ON UPDATE (\w+(?: NULL| ACTION| DEFAULT)?))?,?$",
    re.MULTILINE,
)


@dataclass(frozen=True)
class ForeignKey:
    """A foreign key with its rules; `columns` and `parent_columns` are in lower case."""

    name: str
    columns: tuple[str, ...]
    parent: tuple[str, str]
    parent_columns: tuple[str, ...]
    on_delete: str = _PASSIVE[0]
    on_update: str = _PASSIVE[0]

    @property
    def active(self) -> str | None:
        """The rule by which it changes rows of its table; None: it changes none."""
        for event, rule in (("UPDATE", self.on_update), ("DELETE", self.on_delete)):
            if rule not in _PASSIVE:
                return f"ON {event} {rule}"
        return None

    def changes(self, updated: Collection[str] | None) -> bool:
        """Whether it changes rows if these columns of a parent row are updated; None: deleted."""
        if updated is None:
            return self.on_delete not in _PASSIVE
        return self.on_update not in _PASSIVE and not set(self.parent_columns).isdisjoint(updated)


def unlogged_foreign_keys(
    session: Session, tables: Collection[TableNames]
) -> Mapping[TableNames, tuple[ForeignKey, ...]]:
    """The foreign keys that change rows of their own tables without row events, by table."""
    found: dict[TableNames, dict[str, ForeignKey]] = {}
    (usage,) = metadata(session, [_COLUMNS], tables)
    for names in tables:
        # The parts of other keys show that the server has not left out the table.
        for key, column, *parent in usage.get(names, ()):
            if parent[1] is None:
                continue
            own = found.setdefault(names, {})
            before = own.get(key, ForeignKey(key, (), (parent[0], parent[1]), ()))
            own[key] = replace(
                before,
                columns=(*before.columns, str(column).lower()),
                parent_columns=(*before.parent_columns, str(parent[2]).lower()),
            )
    active = {names: _with_rules(session, names, own) for names, own in found.items()}
    active = {names: keys for names, keys in active.items() if keys}
    return {} if not active or _logs_them(session) else active


def _with_rules(
    session: Session, names: tuple[str, str], keys: Mapping[str, ForeignKey]
) -> tuple[ForeignKey, ...]:
    """The foreign keys with their rules, without those that change no rows."""
    try:
        text = session.rows(f"SHOW CREATE TABLE {quote(names[0])}.{quote(names[1])}")[0][1]
    except AlteredTableError:
        return ()  # The table does not exist any more.
    rules = {name.replace("``", "`"): rules for name, *rules in _RULES.findall(str(text))}
    found = []
    for name, key in keys.items():
        on_delete, on_update = rules.get(name, (CASCADE, CASCADE))
        passive = _PASSIVE[0]
        key = replace(key, on_delete=on_delete or passive, on_update=on_update or passive)
        if key.active:
            found.append(key)
    return tuple(found)


def _logs_them(session: Session) -> bool:
    """Whether the server logs the rows that foreign keys change, as MySQL does from 9.6 on.

    A replica may have rows from an older server, which did not log them.
    """
    name = "innodb_native_foreign_keys"
    if global_variables(session, name).get(name, "").upper() != "OFF":
        return False
    return not session.rows("SHOW REPLICA STATUS")


def check_no_foreign_keys(table: str, keys: Iterable[ForeignKey]) -> None:
    """Raise `TableError` if a table has foreign keys that change its rows without row events."""
    for key in keys:
        raise TableError(
            f"MySQL table {table}: its foreign key '{key.name}' has {key.active}, which changes "
            "its rows without row events in the binlog, so they cannot be followed by a table of a "
            "script; on MariaDB follow this table and "
            f"{'.'.join(key.parent)} with a sync of the database (CALL sys.sync_mysql_database in "
            "a script), and read its Paimon table instead. Or use ON UPDATE RESTRICT ON DELETE "
            "RESTRICT, and change "
            "the rows with statements or triggers, or MySQL 9.6 or later, which has row "
            "events for them (innodb_native_foreign_keys = OFF, and no replica)"
        )
