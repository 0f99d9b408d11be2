"""The Paimon types of MySQL's columns, with the modes of Paimon's sync actions."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from streamhouse.close_matches import nearest
from streamhouse.errors import OptionError
from streamhouse.mysql.values.types import MySqlColumn
from streamhouse.types import flink_type

NOT_BOOL = "tinyint1-not-bool"
MODES = (
    NOT_BOOL, "to-nullable", "to-string", "char-to-string", "longtext-to-bytes",
    "bigint-unsigned-to-bigint", "time-to-string",
)  # fmt: skip
WITHOUT_EFFECT = frozenset({"decimal-no-change", "allow-non-string-to-string"})
"""Modes of Paimon without effect for MySQL, or with one on ALTER TABLE only."""

_MOST_TIME_DIGITS = 3


@dataclass(frozen=True)
class TypeMapping:
    """The modes that are on; `docs/reference/sync.md` describes them."""

    modes: frozenset[str] = frozenset()

    @classmethod
    def of(cls, names: Iterable[str]) -> Self:
        """The mapping with these modes; raises `OptionError` for an unknown one."""
        modes = {name.strip().lower().replace("_", "-") for name in names if name.strip()}
        for name in modes:
            if name not in MODES and name not in WITHOUT_EFFECT:
                raise OptionError(f"--type-mapping: unknown mode '{name}'; {nearest(name, MODES)}")
        return cls(frozenset(modes))

    def type(self, column: MySqlColumn, in_key: bool) -> str:
        """The column's type in Flink's spelling, without its nullability.

        A TINYINT(1) in the primary key stays a number, as BOOLEAN would make keys equal; a SET in
        it is a text.
        """
        if "to-string" in self.modes:
            return "STRING"
        match column.family:
            case "int" | "uint64":
                return self._integer(column, in_key)
            case "decimal" | "float" | "double" | "date" | "year" | "vector":
                return flink_type(column.exact)
            case "bit":
                bits = column.declared_length or 1
                return "BOOLEAN" if bits == 1 else f"BINARY({(bits + 7) // 8})"
            case "datetime" | "timestamp":
                return f"TIMESTAMP({column.fraction})"
            case "time":
                # A TIME of Paimon has milliseconds: more digits would be cut off.
                plain = "time-to-string" in self.modes or column.fraction > _MOST_TIME_DIGITS
                return "STRING" if plain else f"TIME({column.fraction})"
            case "binary":
                is_blob = column.data_type.endswith("blob")
                # VARBINARY(0) is a type of MySQL only.
                length = 0 if is_blob else column.declared_length
                return f"VARBINARY({length})" if length else "BYTES"
            case "set":
                # Paimon has no keys of arrays.
                return "STRING" if in_key else "ARRAY<STRING>"
            case "string":
                return self._text(column)
        return "STRING"

    def nullable(self, column: MySqlColumn) -> bool:
        """Whether the target's column is nullable; ignores that key columns are not.

        A zero date may read as NULL, whatever MySQL's column allows.
        """
        return column.nullable or "to-nullable" in self.modes or column.has_date

    def _integer(self, column: MySqlColumn, in_key: bool) -> str:
        is_boolean = column.column_type.startswith("tinyint(1)") and not column.unsigned
        if is_boolean and not in_key and NOT_BOOL not in self.modes:
            return "BOOLEAN"
        if column.data_type == "bigint" and "bigint-unsigned-to-bigint" in self.modes:
            return "BIGINT"
        is_wider = column.data_type == "mediumint" and column.unsigned
        return "BIGINT" if is_wider else flink_type(column.exact)

    def _text(self, column: MySqlColumn) -> str:
        if column.data_type == "longtext" and "longtext-to-bytes" in self.modes:
            return "BYTES"
        if column.data_type not in ("char", "varchar") or "char-to-string" in self.modes:
            return "STRING"
        length = column.declared_length
        return f"{column.data_type.upper()}({length})" if length else "STRING"
