"""The MySQL table that a sink writes: its columns, its keys, and what its engine guarantees."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass

import pyarrow as pa

from streamhouse.connectors.jdbc.options import JdbcServer
from streamhouse.errors import TableError
from streamhouse.mysql.columns import selected_columns, server_zone
from streamhouse.mysql.connection import Session
from streamhouse.mysql.table import KEY_FACTS, load_columns
from streamhouse.mysql.values.types import MySqlColumn, quote
from streamhouse.sql.plan import Column
from streamhouse.sql.types import digits

_INDEXES = f"""
SELECT {KEY_FACTS} AND table_schema = %s AND table_name = %s ORDER BY index_name, seq_in_index
"""
_ENGINE = """
SELECT table_type, engine, @@max_allowed_packet FROM information_schema.tables
WHERE table_schema = %s AND table_name = %s
"""
_TRANSACTIONAL = ("innodb", "rocksdb", "tokudb")


class JdbcTarget(JdbcServer):
    """A server and the table that is written."""

    @property
    def grants(self) -> str:
        return (
            f"GRANT SELECT, INSERT, UPDATE, DELETE ON {self.database}.{self.table} "
            f"TO '{self.username}'"
        )


@dataclass(frozen=True)
class TargetTable:
    """A table as it is when its query starts.

    `columns` are those that are written, in the sink's order; `key` those of the declared primary
    key, which the index `index` of the table holds. `other_keys`: the table's other unique indexes.
    `engine` is its storage engine, `packet_bytes` the longest statement that the server takes.
    """

    name: str
    quoted: str
    columns: tuple[MySqlColumn, ...]
    key: tuple[str, ...]
    zone: str
    engine: str
    other_keys: tuple[str, ...]
    packet_bytes: int

    @property
    def transactional(self) -> bool:
        """Whether a transaction changes the table completely or not at all."""
        return self.engine.lower() in _TRANSACTIONAL


def load_target(options: JdbcTarget, declared: Sequence[Column], key: Sequence[str]) -> TargetTable:
    """Inspect the table; raises `TableError` if the declared columns or key do not fit it."""
    with closing(Session(options)) as session:
        selected = selected_columns(options, load_columns(session, options), declared)
        zone = options.server_time_zone or server_zone(
            session, selected, "serverTimezone in the option 'url'"
        )
        names = (options.database, options.table)
        unique = _unique_keys(session.rows(_INDEXES, names))
        kind, engine, packet = session.rows(_ENGINE, names)[0]
    if kind in ("VIEW", "SYSTEM VIEW"):
        raise TableError(f"MySQL table {options.name} is a view; write its base table")
    for column, target in selected:
        _check_column(options, column, target, zone)
    index = None if not key else _check_key(options, unique, key)
    _check_key_digits(options, declared, [column for column, _ in selected], key)
    return TargetTable(
        options.name,
        f"{quote(options.database)}.{quote(options.table)}",
        tuple(column for column, _ in selected),
        tuple(key),
        zone,
        str(engine),
        tuple(name for name in unique if name != index),
        int(packet),
    )


def _unique_keys(parts: Sequence[tuple[object, ...]]) -> dict[str, set[str]]:
    """The columns of each unique index; an index over prefixes or expressions has none."""
    unique: dict[str, set[str]] = {}
    partial: set[str] = set()
    for index, column, prefix in parts:
        unique.setdefault(str(index), set()).add(str(column).lower())
        if column is None or prefix is not None:
            partial.add(str(index))
    return {name: set() if name in partial else columns for name, columns in unique.items()}


def _check_key(options: JdbcTarget, unique: dict[str, set[str]], key: Sequence[str]) -> str:
    """The unique index of exactly the declared key; any other would update other rows."""
    wanted = {name.lower() for name in key}
    found = [name for name, columns in unique.items() if columns == wanted]
    if not found:
        columns = ", ".join(quote(name) for name in key)
        indexes = "; ".join(
            f"{name} ({', '.join(sorted(own))})" for name, own in unique.items() if own
        )
        raise TableError(
            f"MySQL table {options.name} has no unique index of exactly the PRIMARY KEY "
            f"({', '.join(key)}) that the table declares, so rows cannot be updated by it (its "
            f"unique indexes: {indexes or 'none'}); declare one of these, or run ALTER TABLE "
            f"{quote(options.database)}.{quote(options.table)} ADD UNIQUE ({columns})"
        )
    return min(found, key=lambda name: name != "PRIMARY")


def _check_key_digits(
    options: JdbcTarget,
    declared: Sequence[Column],
    columns: Sequence[MySqlColumn],
    key: Sequence[str],
) -> None:
    """Raise `TableError` if MySQL would cut off digits of the key, so that two keys become one."""
    for declaration, column in zip(declared, columns, strict=True):
        timestamp = (
            column.family in ("datetime", "timestamp") and "TIMESTAMP" in declaration.type.upper()
        )
        if declaration.name in key and timestamp and digits(declaration.type) > column.fraction:
            raise TableError(
                f"MySQL table {options.name}: column '{column.name}' ({column.column_type}) of the "
                f"PRIMARY KEY does not hold all digits of {declaration.type}; declare it as "
                f"TIMESTAMP({column.fraction}), or change the column"
            )


def _check_column(options: JdbcTarget, column: MySqlColumn, kind: pa.DataType, zone: str) -> None:
    where = f"MySQL table {options.name}: column '{column.name}' ({column.column_type})"
    if column.extra == "generated":
        raise TableError(f"{where} is generated by the server; declare the table without it")
    if column.family == "geometry":
        raise TableError(f"{where} cannot be written; declare the table without it")
    texts = pa.types.is_string(kind) and column.family == "timestamp" and zone != "UTC"
    if texts:
        raise TableError(f"{where} cannot be written as text; declare it as TIMESTAMP_LTZ")
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        raise TableError(
            f"{where} is declared with nanoseconds, which MySQL does not hold; declare it as "
            "TIMESTAMP(6)"
        )
    nested = pa.types.is_struct(kind) or pa.types.is_map(kind) or pa.types.is_list(kind)
    if nested and not (pa.types.is_list(kind) and column.family == "set"):
        raise TableError(
            f"{where} cannot hold a ROW, ARRAY or MAP; declare it as STRING, and write JSON"
        )
