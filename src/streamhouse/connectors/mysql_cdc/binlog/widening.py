"""Decides whether a change of a column's type keeps its values."""

from __future__ import annotations

import re

from streamhouse.connectors.mysql_cdc.binlog.sql.types import TEXT_BYTES, character_bytes
from streamhouse.mysql.values.types import MySqlColumn

_INTEGER_BYTES = {"tinyint": 1, "smallint": 2, "mediumint": 3, "int": 4, "bigint": 8}
_UNICODE = frozenset({"utf8mb4", "utf16", "utf16le", "utf32"})
_BASIC_UNICODE = frozenset({"utf8mb3", "utf8", "ucs2"})
_LENGTH = re.compile(r"\((\d+)\)")


def keeps_values(old: MySqlColumn, new: MySqlColumn, strict: bool) -> bool:
    """Whether ALTER TABLE keeps every value.

    `strict`: the statement fails for numbers out of range and for NULL, but not for rounded
    fractions and trailing blanks.
    """
    if old.nullable and not new.nullable and (not strict or new.data_type == "timestamp"):
        return False
    same = old.data_type == new.data_type
    if same and (old.column_type == new.column_type or old.data_type in ("date", "year", "json")):
        return keeps_text(old.charset, new.charset, old.data_type in ("enum", "set"))
    ints = old.data_type in _INTEGER_BYTES and new.data_type in _INTEGER_BYTES
    if ints:
        return strict or _includes_range(old, new)
    if old.data_type == new.data_type == "decimal":
        whole = new.precision - new.scale >= old.precision - old.scale
        signs = old.unsigned or not new.unsigned
        return new.scale >= old.scale and (strict or (whole and signs))
    if old.data_type in ("float", "double") and new.data_type in ("float", "double"):
        narrower = (old.data_type, new.data_type) == ("double", "float")
        return not narrower and "(" not in new.column_type and (not new.unsigned or old.unsigned)
    if old.data_type == new.data_type in ("datetime", "timestamp", "time"):
        return new.fraction >= old.fraction
    if old.data_type == new.data_type in ("enum", "set"):
        return _keeps_members(old, new)
    return _keeps_lengths(old, new)


def _includes_range(old: MySqlColumn, new: MySqlColumn) -> bool:
    before, after = _INTEGER_BYTES[old.data_type], _INTEGER_BYTES[new.data_type]
    if old.unsigned == new.unsigned:
        return after >= before
    return old.unsigned and after > before


def _keeps_members(old: MySqlColumn, new: MySqlColumn) -> bool:
    """Whether all members remain.

    The values of a removed member become those of a member that the collation considers equal.
    """
    if not keeps_text(old.charset, new.charset, members=True) or not set(old.members) <= set(
        new.members
    ):
        return False
    # A SET's text lists the members in the order of their definition.
    kept = [member for member in new.members if member in set(old.members)]
    return old.data_type == "enum" or kept == old.members


def _keeps_lengths(old: MySqlColumn, new: MySqlColumn) -> bool:
    binary = ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob")
    if old.data_type in binary and new.data_type in binary:
        # BINARY is padded to its length.
        return new.data_type != "binary" and new.length >= old.length
    if old.data_type == new.data_type == "vector":
        return new.length >= old.length
    texts = ("char", "varchar", "tinytext", "text", "mediumtext", "longtext")
    if old.data_type not in texts or new.data_type not in texts:
        return False
    if not keeps_text(old.charset, new.charset) or new.data_type == "char" != old.data_type:
        return False
    if new.data_type in TEXT_BYTES:
        if old.data_type in TEXT_BYTES and old.charset == new.charset:
            return TEXT_BYTES[new.data_type] >= TEXT_BYTES[old.data_type]
        return TEXT_BYTES[new.data_type] >= _characters(old) * character_bytes(new.charset)
    return _characters(new) >= _characters(old)


def _characters(column: MySqlColumn) -> int:
    """The most characters of a text."""
    if column.data_type in TEXT_BYTES:
        return TEXT_BYTES[column.data_type]
    match = _LENGTH.search(column.column_type)
    return int(match[1]) if match else 0


def keeps_text(old: str | None, new: str | None, members: bool = False) -> bool:
    """Whether every text of the character set `old` can be converted to `new` without loss.

    `members`: of an ENUM or SET, which MariaDB loses in character sets of wide characters.
    """
    if old == new:
        return True
    if members and new not in ("utf8mb4", "utf8mb3"):
        return False
    if new is None or old is None:
        return False
    return (
        new in _UNICODE
        or (old == "ascii" and new != "binary")
        or (new in _BASIC_UNICODE and old in _BASIC_UNICODE)
    )
