"""The order of keys; if it depends on a collation, the server compares them."""

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, TypeAlias

import pyarrow as pa

from streamhouse.errors import TableError
from streamhouse.mysql.charsets import same_bytes
from streamhouse.mysql.connection import Session
from streamhouse.mysql.position import KeyJson
from streamhouse.mysql.table import TableDefinition
from streamhouse.mysql.values.byte_values import UNICODE
from streamhouse.mysql.values.types import (
    NO_KEY,
    WITH_FRACTIONS,
    MySqlColumn,
    errors_of,
    key_of_text,
    key_text,
    key_texts,
    quote,
    unreadable,
)

_LOCAL = frozenset(
    {
        "int", "uint64", "year", "decimal", "binary", "date", "datetime", "timestamp", "enum",
        "set", "bit",
    }
)  # fmt: skip
_BY_SERVER = frozenset({"string", "time", "uuid", "inet4", "inet6"})
_KEYS_PER_QUERY = 500
_LONGEST_LIST = 1000
_Literal: TypeAlias = Callable[[MySqlColumn, Any, list[Any]], str]


class KeySpace:
    """The order of a table's keys, as SQL conditions and as comparisons.

    Percent signs in its SQL are doubled, as in a statement with arguments. Raises `TableError` for
    key columns whose type cannot be read in chunks (FLOAT, …).
    """

    def __init__(self, table: TableDefinition) -> None:
        self.columns = table.key
        self._table = table.full_name
        for column in self.columns:
            if column.family not in _LOCAL and column.family not in _BY_SERVER:
                raise TableError(
                    f"MySQL table {table.full_name}: key column '{column.name}' has the "
                    f"type {column.column_type}, which is not supported in a key; supported are "
                    "integers, decimals, strings, binaries, DATE, DATETIME, TIMESTAMP, TIME, YEAR, "
                    "ENUM, SET, BIT, UUID, INET4 and INET6"
                )
            _check_members(table, column)
        self._local = all(column.family in _LOCAL for column in self.columns)

    @property
    def selects(self) -> str:
        """The key's columns in a SELECT; NULL for a value that cannot be a key."""
        return ", ".join(escaped(key_select(column)) for column in self.columns)

    def key(self, row: Sequence[Any]) -> KeyJson:
        """The key of a row that `selects` returned."""
        with errors_of(self._table):
            return tuple(key_of_text(c, value) for c, value in zip(self.columns, row, strict=True))

    @property
    def names(self) -> str:
        """The key's columns for ORDER BY."""
        return ", ".join(escaped(quote(column.name)) for column in self.columns)

    def table(self, keys: Sequence[KeyJson]) -> pa.Table:
        """The key columns of these keys, of the same types as those of `selected`."""
        arrays = []
        for at, column in enumerate(self.columns):
            values = [key[at] for key in keys]
            if column.family == "binary":
                values = [bytes.fromhex(value) for value in values]
            arrays.append(pa.array(values, _array_type(column)))
        return pa.table(arrays, [column.name for column in self.columns])

    def selected(self, raw: Sequence[pa.Array]) -> pa.Table:
        """The key columns of selected rows, from the binary arrays of `selects`."""
        arrays = [_array(column, texts) for column, texts in zip(self.columns, raw, strict=True)]
        return pa.table(arrays, [column.name for column in self.columns])

    def condition(self, low: KeyJson | None, high: KeyJson | None) -> tuple[str, list[Any]]:
        """The SQL condition, and its arguments, for keys greater than `low` and up to `high`."""
        arguments: list[Any] = []
        left = [escaped(quote(column.name)) for column in self.columns]
        return self._between(left, low, high, arguments, _plain_literal) or "TRUE", arguments

    def within(
        self, keys: Sequence[KeyJson], low: KeyJson | None, high: KeyJson | None, session: Session
    ) -> list[bool]:
        """For each key, whether it is greater than `low` and up to `high`."""
        if low is None and high is None:
            return [True] * len(keys)
        if self._local:
            first = None if low is None else self._comparable(low)
            last = None if high is None else self._comparable(high)
            comparable = [self._comparable(key) for key in keys]
            return [
                (first is None or key > first) and (last is None or key <= last)
                for key in comparable
            ]
        results: list[bool] = []
        for start in range(0, len(keys), _KEYS_PER_QUERY):
            results += self._compare(keys[start : start + _KEYS_PER_QUERY], low, high, session)
        return results

    def _compare(
        self, keys: Sequence[KeyJson], low: KeyJson | None, high: KeyJson | None, session: Session
    ) -> list[bool]:
        """Let the server compare, by the collations of the columns."""
        arguments: list[Any] = []
        conditions = [self._between(key, low, high, arguments, _typed_literal) for key in keys]
        row = session.rows(f"SELECT ({'), ('.join(conditions)})", arguments)[0]
        return [value == "1" for value in row]

    def _between(
        self,
        left: Sequence[Any],
        low: KeyJson | None,
        high: KeyJson | None,
        arguments: list[Any],
        literal: _Literal,
    ) -> str:
        """The condition that a key is greater than `low` and up to `high`; empty without both."""
        bounds = ((low, ">", ">"), (high, "<", "<="))
        return " AND ".join(
            self._compared(left, bound, arguments, literal, strict, final)
            for bound, strict, final in bounds
            if bound is not None
        )

    def _compared(
        self,
        left: Sequence[Any],
        bound: KeyJson,
        arguments: list[Any],
        literal: _Literal,
        strict: str,
        final: str,
    ) -> str:
        # A row comparison such as (a, b) > (1, 2) does not use the index; this form does.
        names = literal is _plain_literal

        def compare(index: int, operator: str) -> str:
            column = self.columns[index]
            if names and column.family in ("enum", "set"):
                return _by_position(column, str(left[index]), operator, bound[index])
            text = str(left[index]) if names else literal(column, left[index], arguments)
            return f"{text} {operator} {literal(column, bound[index], arguments)}"

        last = len(self.columns) - 1
        outer = compare(0, f"{strict}=") + " AND " if last else ""
        cases = []
        for index in range(last + 1):
            equal = [compare(i, "=") for i in range(index)]
            equal.append(compare(index, final if index == last else strict))
            cases.append("(" + " AND ".join(equal) + ")")
        return f"({outer}({' OR '.join(cases)}))"

    def _comparable(self, key: KeyJson) -> tuple[Any, ...]:
        return tuple(
            _comparable(column, value) for column, value in zip(self.columns, key, strict=True)
        )


def escaped(sql: str) -> str:
    """SQL with doubled percent signs, which are not placeholders of arguments."""
    return sql.replace("%", "%%")


def key_select(column: MySqlColumn) -> str:
    """The SQL expression of a key column; NULL for values that could not be told apart.

    These are texts to which other keys convert, too.
    """
    if column.family != "string" or column.charset is None or column.charset in UNICODE:
        return column.select
    name = quote(column.name)
    return f"IF({same_bytes(name, column.charset)}, {name}, NULL)"


def check_key(column: MySqlColumn, raw: pa.Array) -> None:
    """Raise `TableError` for invalid values of a key column, which `key_select` returned."""
    if column.family != "string":
        return
    if raw.null_count:
        raise unreadable(column, NO_KEY)
    try:
        raw.cast(pa.string())
    except pa.ArrowInvalid:
        raise unreadable(column, NO_KEY) from None


def _array_type(column: MySqlColumn) -> pa.DataType:
    if column.family in ("int", "year"):
        return pa.int64()
    if column.family in ("uint64", "enum", "set", "bit"):
        return pa.uint64()
    return pa.binary() if column.family == "binary" else pa.string()


def _array(column: MySqlColumn, raw: pa.Array) -> pa.Array:
    """The column's values in the form of `key_of_text`, except that binaries stay bytes."""
    if column.family in ("enum", "set", "bit"):
        values = [key_of_text(column, value) for value in raw.to_pylist()]
        return pa.array(values, _array_type(column))
    if column.family == "binary":
        return raw
    texts = raw.cast(pa.string())
    if column.family in WITH_FRACTIONS:
        return key_texts(column, texts)
    return texts.cast(_array_type(column))


def _check_members(table: TableDefinition, column: MySqlColumn) -> None:
    if column.family not in ("enum", "set"):
        return
    members = column.members
    if "" in members or len(set(members)) < len(members) or column.members_are_uncertain:
        raise TableError(
            f"MySQL table {table.full_name}: primary key column '{column.name}' has members that "
            f"cannot be told apart ({column.column_type}); use others, or another key"
        )


def _by_position(column: MySqlColumn, name: str, operator: str, bound: int) -> str:
    """Compares members of an ENUM or SET by number, in the server's order, not by name."""
    count = len(column.members)
    if column.family == "set" or operator == "=" or count > _LONGEST_LIST:
        number = name if column.family == "enum" else f"CAST({name} AS UNSIGNED)"
        return f"{number} {operator} {bound}"
    # The server uses the index for a list, but not for a comparison.
    tests: dict[str, Callable[[int], bool]] = {
        ">": lambda number: number > bound,
        ">=": lambda number: number >= bound,
        "<": lambda number: number < bound,
        "<=": lambda number: number <= bound,
    }
    numbers = [str(number) for number in range(count + 1) if tests[operator](number)]
    return f"{name} IN ({', '.join(numbers)})" if numbers else "FALSE"


def _comparable(column: MySqlColumn, value: Any) -> Any:
    if column.family == "decimal":
        return Decimal(value)
    # An offset of an earlier release may have zeros at the end.
    return key_text(column, value) if column.has_date else value


def _plain_literal(column: MySqlColumn, value: Any, arguments: list[Any]) -> str:
    if column.family == "binary":
        arguments.append(bytes.fromhex(value))
    elif column.family == "decimal":
        arguments.append(Decimal(value))
    else:
        arguments.append(value)
    return "%s"


def _typed_literal(column: MySqlColumn, value: Any, arguments: list[Any]) -> str:
    literal = _plain_literal(column, value, arguments)
    if column.family == "string":
        return f"CONVERT({literal} USING {column.charset}) COLLATE {column.collation}"
    if column.family in ("date", "datetime", "timestamp"):
        return f"CAST({literal} AS DATETIME(6))"
    if column.family == "time":
        return f"CAST({literal} AS TIME(6))"
    if column.family in ("uuid", "inet4", "inet6"):
        return f"CAST({literal} AS {column.family.upper()})"
    return literal
