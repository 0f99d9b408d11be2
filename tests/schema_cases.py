"""Generated definitions of tables: sound ones, and ones with a fault or two."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from streamhouse.paimon.schema.validation.declared_schema import DeclaredSchema

TYPES = (
    "BOOLEAN", "TINYINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL(10, 2)", "CHAR(3)",
    "VARCHAR(5)", "STRING", "BINARY(2)", "BYTES", "DATE", "TIMESTAMP(3)", "TIMESTAMP_LTZ(3)",
    "ARRAY<INT>", "MAP<INT, INT>", "ROW<a INT, b STRING>", "ARRAY<ROW<a INT, b STRING>>",
)  # fmt: skip
_COMMON = ("INT", "BIGINT", "STRING", "DOUBLE", "DECIMAL(10, 2)", "DATE")
_ODD_NAMES = ("rowkind", "_KEY_x", "_VALUE_KIND", "_LEVEL", "_ROW_ID", "_SEQUENCE_NUMBER", "V1")
_FUNCTIONS = (
    "sum", "product", "max", "min", "last_value", "last_non_null_value", "first_value",
    "first_non_null_value", "listagg", "bool_and", "bool_or", "collect", "merge_map",
    "nested_update", "nested_partial_update", "rbm32", "hll_sketch", "bogus",
)  # fmt: skip
_ENGINES = ("deduplicate", "aggregation", "partial-update", "first-row", "AGGREGATION", "agg")
_OPTIONS: Mapping[str, Sequence[str]] = {
    "changelog-producer": ("none", "input", "lookup", "full-compaction", "lokup"),
    "deletion-vectors.enabled": ("true", "false", "yes"),
    "ignore-delete": ("true", "false"),
    "streaming-read-overwrite": ("true", "false"),
    "snapshot.num-retained.min": ("0", "1", "20", "x"),
    "snapshot.num-retained.max": ("5", "30"),
    "changelog.num-retained.min": ("0", "3", "20"),
    "partition.expiration-time": ("7 d",),
    "row-tracking.enabled": ("true", "false"),
    "data-evolution.enabled": ("true",),
    "clustering.incremental": ("true",),
    "clustering.columns": ("v1", "zz"),
    "record-level.expire-time": ("1 d",),
    "partial-update.remove-record-on-delete": ("true", "false"),
    "aggregation.remove-record-on-delete": ("true", "false"),
    "table-read.sequence-number.enabled": ("true",),
    "scan.mode": ("latest", "from-snapshot", "from-timestamp", "latest-full", "later"),
    "scan.snapshot-id": ("1",),
    "scan.timestamp-millis": ("1000",),
    "file.format": ("parquet", "orc", "avro", "bogus"),
    "full-compaction.delta-commits": ("2",),
    "upsert-key": ("k1", "zz"),
    "sequence.field.sort-order": ("ascending", "descending", "desc"),
    "write-buffer-size": ("64 mb",),
    "pk-clustering-override": ("true",),
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A definition; `options` are as they are stored."""

    columns: tuple[tuple[str, str], ...]
    primary_key: tuple[str, ...]
    partition_keys: tuple[str, ...]
    options: Mapping[str, str]

    @property
    def declared(self) -> DeclaredSchema:
        return DeclaredSchema(
            "table t", self.columns, self.primary_key, self.partition_keys, self.options
        )


def generated(seed: int, odd: float = 0.15) -> Case:
    """The definition of a seed; `odd` is how likely each of its parts is to be unusual."""
    return _Generator(random.Random(seed), odd).case()


class _Generator:
    def __init__(self, chance: random.Random, odd: float) -> None:
        self._chance, self._odd = chance, odd

    def _is_odd(self) -> bool:
        return self._chance.random() < self._odd

    def case(self) -> Case:
        chance = self._chance
        names = [f"k{n}" for n in range(1, chance.randint(1, 2) + 1)]
        values = [f"v{n}" for n in range(1, chance.randint(2, 4) + 1)]
        if self._is_odd() and self._is_odd():
            values.append(chance.choice([*_ODD_NAMES, "v1"]))
        columns = [(name, self._type(0.3)) for name in names]
        columns += [(name, self._type(1.5)) for name in values]
        key = names if chance.random() < 0.75 else []
        partitions = [self._name(names if chance.random() < 0.6 else values)]
        partitions = partitions if chance.random() < 0.25 else []
        if self._is_odd() and self._is_odd():
            key = [*key, self._name(values)]
        options = self._merging(names, values) if key or self._is_odd() else {}
        options |= self._buckets(names, bool(key))
        for _ in range(chance.choice((0, 0, 1, 2))):
            option = chance.choice(list(_OPTIONS))
            options[option] = chance.choice(_OPTIONS[option])
        return Case(tuple(columns), tuple(key), tuple(partitions), options)

    def _type(self, weight: float) -> str:
        any_type = self._chance.random() < self._odd * weight
        return self._chance.choice(TYPES if any_type else _COMMON)

    def _name(self, names: Sequence[str]) -> str:
        if self._is_odd() and self._is_odd():
            return self._chance.choice(("zz", "v11", "K1"))
        return self._chance.choice(names)

    def _buckets(self, names: Sequence[str], keyed: bool) -> dict[str, str]:
        options = {}
        if self._chance.random() < 0.6:
            options["bucket"] = self._chance.choice(
                ("1", "2", "-1", "0") if self._is_odd() else "12"
            )
            if not keyed or self._is_odd():
                options["bucket-key"] = self._name(names)
        return options

    def _merging(self, names: Sequence[str], values: Sequence[str]) -> dict[str, str]:
        chance, options = self._chance, {}
        engine = chance.choice(_ENGINES if self._is_odd() else _ENGINES[:4])
        if engine != "deduplicate":
            options["merge-engine"] = engine
        if chance.random() < (0.3 if engine != "first-row" else self._odd):
            fields = [self._name(values) for _ in range(chance.choice((1, 1, 2)))]
            options["sequence.field"] = ",".join(fields)
        if engine == "partial-update" or (self._is_odd() and self._is_odd()):
            for _ in range(chance.choice((0, 1, 1, 2))):
                group = chance.sample(values, min(len(values), chance.choice((2, 2, 3))))
                if self._is_odd() and self._is_odd():
                    group[-1] = chance.choice([*names, "zz", group[0]])
                options[f"fields.{group[0]}.sequence-group"] = ",".join(group[1:])
        if engine.lower() in ("aggregation", "partial-update") or self._is_odd():
            for _ in range(chance.choice((0, 1, 2))):
                column = self._name(names if self._is_odd() and self._is_odd() else values)
                functions = _FUNCTIONS if self._is_odd() else _FUNCTIONS[:8]
                options[f"fields.{column}.aggregate-function"] = chance.choice(functions)
            if self._is_odd():
                options["fields.default-aggregate-function"] = chance.choice(_FUNCTIONS)
            if self._is_odd():
                options[f"fields.{self._name(values)}.ignore-retract"] = "true"
            if self._is_odd():
                options[f"fields.{self._name(values)}.nested-key"] = chance.choice("abz")
        if self._is_odd() and self._is_odd():
            options["rowkind.field"] = self._name(values)
        if self._is_odd():
            options["record-level.time-field"] = self._name(values)
        return options
