"""The partitions of a dimension that a lookup joins: `max_pt()`, `max_two_pt()`, or named ones."""

import datetime
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from streamhouse.close_matches import nearest
from streamhouse.errors import OptionError
from streamhouse.paimon.read.conditions import Filter, keys_filter
from streamhouse.paimon.read.key_set import KeySet
from streamhouse.paimon.read.table import Table

Partition: TypeAlias = tuple[str | None, ...]
"""The values of the partition keys as text, as in the names of folders; None for null."""

MAX = "max_pt()"
_NEWEST = {MAX: 1, "max_two_pt()": 2}
_DEFAULT_NAME = "__DEFAULT_PARTITION__"
_FORM = (
    "write 'max_pt()', 'max_two_pt()', partitions such as 'dt=2026-01-01;dt=2026-01-02', or "
    "levels such as 'dt=max_pt(),hour=max_pt()'"
)


@dataclass(frozen=True)
class PartitionRule:
    """The option `scan.partitions` (or `lookup.dynamic-partition`) of a dimension, as given.

    `newest` is how many of the newest partitions are joined. If it is 0, each of `specs` has the
    values of the first partition keys; `MAX` is the greatest value that exists.
    """

    text: str
    newest: int
    specs: tuple[tuple[tuple[str, str], ...], ...] = ()

    @classmethod
    def parse(cls, text: str, keys: Sequence[str], where: str) -> Self:
        """Parse the option; `keys` are the table's partition keys, `where` begins error messages.

        Raises `OptionError` for other texts and for unknown keys.
        """
        if not keys:
            raise OptionError(
                f"{where}: 'scan.partitions' = '{text}' needs a table with partitions; leave it out"
            )
        plain = text.strip().lower()
        if plain in _NEWEST:
            return cls(plain, _NEWEST[plain])
        specs = tuple(_spec(part, keys, text, where) for part in text.split(";"))
        moving = [spec for spec in specs if any(value == MAX for _, value in spec)]
        if moving and len(specs) > 1:
            raise OptionError(f"{where}: '{text}': {MAX} cannot be combined with ';'; {_FORM}")
        for spec in specs:
            if not moving and len(spec) < len(keys):
                missing = ", ".join(keys[len(spec) :])
                raise OptionError(f"{where}: '{text}' has no value for {missing}; {_FORM}")
        return cls(text.strip(), 0, specs)

    def choose(
        self, partitions: Iterable[Partition], fields: Sequence[pa.Field]
    ) -> list[Partition]:
        """Those of `partitions` that are joined; `fields` are the partition keys.

        The newest come first, for each of `specs`.
        """
        values = {
            partition: tuple(map(key_value, partition, fields)) for partition in set(partitions)
        }

        def order(partition: Partition) -> list[tuple[bool, Any]]:
            return [(value is not None, value) for value in values[partition]]

        ordered = sorted(values, key=order, reverse=True)
        if self.newest:
            return ordered[: self.newest]
        chosen: list[Partition] = []
        for spec in self.specs:
            matching = ordered
            for place, (_, text) in enumerate(spec):
                if not matching:
                    break
                wanted = values[matching[0]][place]
                if text != MAX:
                    wanted = key_value(None if text == _DEFAULT_NAME else text, fields[place])
                matching = [each for each in matching if values[each][place] == wanted]
            chosen += matching
        return list(dict.fromkeys(chosen))


def _spec(text: str, keys: Sequence[str], whole: str, where: str) -> tuple[tuple[str, str], ...]:
    values: dict[str, str] = {}
    for part in text.split(","):
        key, equals, value = (word.strip() for word in part.partition("="))
        if not equals or not value:
            raise OptionError(f"{where}: '{whole}' is not a partition specification; {_FORM}")
        if key not in keys:
            hint = nearest(key, keys)
            raise OptionError(f"{where}: '{whole}': '{key}' is not a partition key; {hint}")
        values[key] = MAX if value.lower() == MAX else value
    named_keys = [key for key in keys if key in values]
    if named_keys != list(keys[: len(named_keys)]):
        first = next(key for key in keys if key not in values)
        raise OptionError(f"{where}: '{whole}' has no value for '{first}', which comes first")
    return tuple((key, values[key]) for key in named_keys)


def key_value(text: str | None, field: pa.Field) -> Any:
    """The value of a partition key; raises `OptionError` if the text does not fit its type."""
    if text is None:
        return None
    try:
        if pa.types.is_date32(field.type) and text.lstrip("-").isdigit():
            # Paimon names the folder of a DATE by its number of days since 1970.
            return datetime.date(1970, 1, 1) + datetime.timedelta(days=int(text))
        return pa.scalar(text, pa.string()).cast(field.type).as_py()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise OptionError(
            f"partition key '{field.name}': '{text}' is not a value of type {field.type}"
        ) from None


def key_fields(table: Table) -> list[pa.Field]:
    """The fields of the table's partition keys."""
    return [table.arrow_schema.field(name) for name in table.partition_keys]


def newest_snapshot(table: Table) -> tuple[int, list[Partition]]:
    """The newest snapshot (0: there is none) and its partitions."""
    null = table.options.get("partition.default-name", _DEFAULT_NAME)
    snapshot = table.latest_snapshot_id()
    while snapshot is not None:
        # The Rust core always lists the partitions of the newest snapshot.
        listed = table.rust.list_partitions()
        latest = table.latest_snapshot_id()
        if latest == snapshot:
            texts = ([partition[key] for key in table.partition_keys] for partition in listed)
            return snapshot, [tuple(None if t == null else t for t in each) for each in texts]
        snapshot = latest
    return 0, []


def condition(table: Table, chosen: Sequence[Partition]) -> Filter | None:
    """The filter for partition pruning, if there is one; rows of other partitions may pass it."""
    # An empty string is stored in the folder of null.
    has_null = any(text is None for partition in chosen for text in partition)
    return None if has_null else keys_filter(key_fields(table), _values(table, chosen))


def mask(rows: pa.Table, table: Table, chosen: Sequence[Partition]) -> pa.Array:
    """Boolean mask of the rows of the chosen partitions; `rows` has the partition keys."""
    columns = {}
    for field in key_fields(table):
        column = columns[field.name] = rows.column(field.name)
        if pa.types.is_string(field.type):
            empty = pc.fill_null(pc.equal(column, ""), False)
            columns[field.name] = pc.if_else(empty, None, column)
    return pa.array(KeySet(_values(table, chosen)).mask(pa.table(columns)))


def _values(table: Table, chosen: Sequence[Partition]) -> pa.Table:
    """The keys of partitions, in the types of their columns."""
    fields = key_fields(table)
    columns = [
        pa.array([key_value(partition[number], field) for partition in chosen], field.type)
        for number, field in enumerate(fields)
    ]
    return pa.Table.from_arrays(columns, [field.name for field in fields])
