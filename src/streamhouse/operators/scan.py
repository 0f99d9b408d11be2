"""The scan of a table: the leaves of each tree."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from streamhouse.operators.operator import WEIGHT, Change, Emits, Key, Operator
from streamhouse.sql.expressions.binder import quote
from streamhouse.sql.plan import TableInfo
from streamhouse.sql.types import duck_type


@dataclass(frozen=True)
class Scan(Operator):
    """Reads the `read` columns of a table, which is the relation `relation` of the query.

    `prefix` begins the names of its columns, so that they differ from those of other inputs.
    `fixed`: it reads the table as of a fixed point in time.
    """

    table: TableInfo
    relation: str
    read: tuple[str, ...]
    prefix: str = ""
    fixed: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self.prefix + name for name in self.read)

    @cached_property
    def types(self) -> dict[str, str]:
        kinds = {column.name: duck_type(column.type) for column in self.table.columns}
        return {self.prefix + name: kinds[name] for name in self.read}

    @cached_property
    def keys(self) -> frozenset[Key]:
        key, table = frozenset(self.table.primary_key), self.table
        # Keys of Paimon tell 0.0 from -0.0, and comparisons do not.
        inexact = {c.name for c in table.columns if c.type.startswith(("FLOAT", "DOUBLE"))}
        declared_only = table.connector != "paimon" or "$" in table.name[-1]
        per_partition = not key.issuperset(table.partitioned_by)
        if not key or declared_only or per_partition or key & inexact or not key <= {*self.read}:
            return frozenset()
        return frozenset([frozenset(self.prefix + name for name in key)])

    @cached_property
    def not_null(self) -> frozenset[str]:
        never = {c.name for c in self.table.columns if not c.nullable} | {*self.table.primary_key}
        return frozenset(self.prefix + name for name in self.read if name in never)

    def _emits(self, inputs: Sequence[Emits]) -> Emits:
        if self.fixed:
            return Emits.NOTHING
        return Emits.CHANGES if self.table.changelog else Emits.INSERTS

    @property
    def loses(self) -> str:
        return f"table {'.'.join(self.table.name[-2:])} has updates and deletes"

    @property
    def _read_columns(self) -> str:
        return ", ".join(f"{quote(name)} AS {quote(self.prefix + name)}" for name in self.read)

    def whole(self, inputs: Sequence[str]) -> str:
        """The SQL of its rows; `inputs`: the relation in place of its own, if there is one."""
        relation = inputs[0] if inputs else quote(self.relation)
        return f"SELECT {self._read_columns} FROM {relation}"

    def delta(self, changes: Sequence[Change], result: str = "") -> str:
        """The SQL of its change, which the one input has as the columns of the table."""
        return f"SELECT {self._read_columns}, {WEIGHT} FROM {changes[0].delta}"

    def describe(self) -> str:
        return f"scan {'.'.join(self.table.name)} ({', '.join(self.read)})"
