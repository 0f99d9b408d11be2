"""Decides how an ALTER TABLE affects the rows that a stream has read, and the columns."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from streamhouse.connectors.mysql_cdc.binlog.sql.alter import Alteration, ColumnChange
from streamhouse.connectors.mysql_cdc.binlog.sql.types import (
    TEXT_BYTES,
    ColumnSpec,
    character_bytes,
)
from streamhouse.mysql.table import PRIMARY, TableDefinition
from streamhouse.mysql.values.types import MySqlColumn

UNKNOWN = "unknown"
"""The type of a column whose type cannot be determined from its statement."""


@dataclass(frozen=True)
class Refusal:
    """Why a stream cannot continue after a statement.

    `missing`: the column that no longer exists under its name; a stream without it can continue.
    """

    why: str
    missing: str | None = None


def refusal(
    changes: Alteration,
    known: TableDefinition | None,
    table: TableDefinition,
    captured: Collection[str],
    strict: bool,
    text_keys: Collection[str] = (),
) -> Refusal | None:
    """Why rows that were read before these changes may now be wrong; None: they are right.

    `known`: the table before the changes; None if that is not known. `table`: that with the key by
    which rows were read. `captured`: the columns that are read, in lower case. `strict`: an ALTER
    fails for values that do not fit. `text_keys`: the columns of the key that are written as texts.
    """
    key, index = [column.name.lower() for column in table.key], table.index
    if changes.rows:
        return Refusal(f"it {changes.rows[0]}")
    if index.lower() in map(str.lower, changes.dropped_indexes):
        return Refusal(f"it drops the unique key '{index}', which identifies the rows")
    before = {} if known is None else {column.name.lower(): column for column in known.columns}
    generated = any("generated" in before[name].extra for name in captured if name in before)
    for change in changes.columns:
        spec, old = change.spec, before.get(change.old or "")
        found = None
        if change.old is None:
            found = _added(change, captured)
        elif spec is None:
            found = _gone(change) if change.old in captured else None
        elif change.old in captured or generated:
            found = _gone(change) or _redefined(change, spec, old, key, strict)
            if found is None and spec.column and old and old.name in text_keys:
                found = _other_digits(old, spec.column)
            nullable = spec.column is not None and spec.column.nullable
            if found is None and index != PRIMARY and change.old in key and nullable:
                found = Refusal(f"it allows NULL in '{change.name}', a column of the unique key")
        if found is not None:
            return found
    for charset in changes.converted:
        found = _converted(charset, known, captured, key)
        if found is not None:
            return found
    return None if index != PRIMARY or _keeps_key(changes, key) else _OTHER_KEY


_OTHER_KEY = Refusal("it changes the primary key")


def _keeps_key(changes: Alteration, key: Sequence[str]) -> bool:
    now: Sequence[str] | None = key
    for new in changes.keys:
        # A key can only be added where none is.
        now = new if now is None else None
    return now is not None and list(now) == list(key)


def _added(change: ColumnChange, captured: Collection[str]) -> Refusal | None:
    assert change.name is not None and change.spec is not None
    if change.spec.is_key:
        return _OTHER_KEY
    if change.name.lower() in captured and change.spec.default:
        return Refusal(
            f"it adds column '{change.name}', which existing rows get with a value, without row "
            "events"
        )
    return None


def _gone(change: ColumnChange) -> Refusal | None:
    if change.name is not None and change.name.lower() == change.old:
        return None
    verb = "drops" if change.name is None else "renames"
    return Refusal(f"it {verb} column '{change.old}'", change.old)


def _redefined(
    change: ColumnChange,
    spec: ColumnSpec,
    old: MySqlColumn | None,
    key: Sequence[str],
    strict: bool,
) -> Refusal | None:
    name, new = change.name, spec.column
    if spec.is_key:
        return _OTHER_KEY
    if old is None:
        return Refusal(f"it changes column '{name}', whose type before that is not known")
    displayed = "another type" if new is None else new.column_type
    why = f"column '{name}' is {old.column_type}, and it makes it {displayed}: it was altered, and "
    if new is None or spec.unknown:
        return Refusal(why + "it is not certain that existing rows keep their values")
    if spec.generated or "generated" in old.extra:
        return Refusal(why + "its values are computed, without row events")
    counts = spec.auto_increment and "auto_increment" not in old.extra
    if counts or not keeps_values(old, new, strict):
        return Refusal(why + "existing rows may get other values, without row events")
    ordered = (old.charset, old.collation) == (new.charset, new.collation)
    if change.old in key and old.family == "string" and not ordered:
        return Refusal(why + "the order of its keys may be another one")
    return None


def _other_digits(old: MySqlColumn, new: MySqlColumn) -> Refusal | None:
    if (old.fraction, old.scale) == (new.fraction, new.scale):
        return None
    return Refusal(
        f"column '{old.name}' is {old.column_type}, and it makes it {new.column_type}: keys, which "
        "are texts, get another number of digits without row events"
    )


def _converted(
    charset: str | None,
    known: TableDefinition | None,
    captured: Collection[str],
    key: Sequence[str],
) -> Refusal | None:
    if known is None:
        return Refusal("it converts texts whose character set before that is not known")
    for column in known.columns:
        name = column.name.lower()
        if column.charset is None or name not in captured:
            continue
        if name in key:
            return Refusal(f"it converts key column '{column.name}'")
        members = column.data_type in ("enum", "set")
        if not keeps_text(column.charset, charset, members):
            return Refusal(f"it converts column '{column.name}', whose values may not fit")
    return None


def altered(changes: Alteration, before: TableDefinition) -> TableDefinition | None:
    """The table after the changes; None if that is not certain."""
    columns = {former.name.lower(): former for former in before.columns}
    renamed: set[str] = set()
    moved: list[tuple[str, MySqlColumn, str | None]] = []
    gone = {change.old for change in changes.columns if change.name is None}
    result = {name: column for name, column in columns.items() if name not in gone}
    for change in changes.columns:
        if change.name is None:
            continue
        name, old = change.name.lower(), columns.get(change.old or "")
        if change.old is None:
            if not (change.conditional and name in columns):
                moved.append((name, _renewed(change, None), change.after))
            continue
        # A statement's names are those of before it, also where columns swap theirs.
        if old is None or change.old in gone:
            return None
        if name != change.old:
            if name in columns:
                return None
            renamed |= {change.old, name}
        new = (name, _renewed(change, old))
        if change.after is not None:
            del result[change.old]
            moved.append((*new, change.after))
        else:
            result = dict(new if one[0] == change.old else one for one in result.items())
    charset = changes.charsets[-1] if changes.charsets else before.charset
    if changes.converted:
        # Columns of the statement, too, whatever character set it gives them.
        result = {name: _convert(column, charset) for name, column in result.items()}
        moved = [(name, _convert(column, charset), after) for name, column, after in moved]
    return _placed(before, list(result.items()), moved, renamed, charset)


def _renewed(change: ColumnChange, old: MySqlColumn | None) -> MySqlColumn:
    """The column after a change; `old`: as it was before."""
    assert change.name is not None
    if change.spec is None and old is not None:
        return replace(old, name=change.name)
    column = None if change.spec is None else change.spec.column
    return column or MySqlColumn(change.name, UNKNOWN, UNKNOWN)


def _convert(column: MySqlColumn, charset: str | None) -> MySqlColumn:
    if column.charset is None:
        return column
    if column.data_type.endswith("text"):
        # The server chooses a longer type if the text may need more bytes.
        return replace(column, data_type="longtext", column_type="longtext", charset=charset)
    return replace(column, charset=charset, collation=None)


def _placed(
    before: TableDefinition,
    order: list[tuple[str, MySqlColumn]],
    moved: Sequence[tuple[str, MySqlColumn, str | None]],
    renamed: Collection[str],
    charset: str | None,
) -> TableDefinition | None:
    for name, column, after in moved:
        names = [one for one, _ in order]
        if after is not None and after in renamed:
            return None
        if after is None:
            order.append((name, column))
        elif not after:
            order.insert(0, (name, column))
        elif after in names:
            order.insert(names.index(after) + 1, (name, column))
        else:
            return None
    by_name = dict(order)
    if len(by_name) != len(order) or any(
        former.name.lower() not in by_name for former in before.key
    ):
        return None
    return replace(
        before,
        columns=tuple(column for _, column in order),
        key=tuple(by_name[former.name.lower()] for former in before.key),
        charset=charset,
    )


_INTEGER_BYTES = {"tinyint": 1, "smallint": 2, "mediumint": 3, "int": 4, "bigint": 8}
_UNICODE = frozenset({"utf8mb4", "utf16", "utf16le", "utf32"})
_BASIC_UNICODE = frozenset({"utf8mb3", "utf8", "ucs2"})


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
    return TEXT_BYTES.get(column.data_type) or column.declared_length or 0


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
