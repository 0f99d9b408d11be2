"""How a table of a case is declared: merge engine, changelog producer, buckets, files, options."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

ENGINES = (
    "deduplicate",
    "sequenced",
    "partial-update",
    "groups",
    "group-sums",
    "aggregation",
    "first-row",
    "append",
)
"""`sequenced` is deduplicate with a sequence field; `groups` and `group-sums` are partial-update
with a sequence group, without and with aggregate functions."""
PRODUCERS = ("none", "input", "lookup", "full-compaction")
BUCKETS = ("1", "4", "-1")
PARTITIONS = ("none", "key", "across")
"""Not partitioned, by a column of the primary key, by a column that is not in the primary key."""
FORMATS = ("parquet", "orc", "avro")
NUMBERS = ("BIGINT", "DECIMAL(12, 2)", "DOUBLE")
WAITS = {
    "": {},
    "lookup-wait": {"lookup-wait": "false"},
    "gentle": {"lookup-compact": "gentle"},
    "write-only": {"write-only": "true"},
    "delta-commits": {"full-compaction.delta-commits": "3"},
}
"""Options by which a table says that its rows may wait for a compaction."""
COLUMNS = ("k", "p", "g", "v", "w", "s")
"""Key, partition, group, amount, version, text."""
FUNCTIONS = {
    "g": ("last_value", "last_non_null_value", "first_value", "first_non_null_value"),
    "v": ("sum", "sum", "max", "min", "last_value", "last_non_null_value", "first_value"),
    "w": ("max", "min", "sum", "last_non_null_value"),
    "s": ("last_non_null_value", "last_value", "first_non_null_value", "listagg", "max"),
}
IGNORING = ("max", "min", "first_value", "first_non_null_value", "listagg")
"""Functions that take nothing back: with `ignore-retract`, they keep what was."""


@dataclass(frozen=True)
class Layout:
    """The declaration of one table; `functions` are those of an aggregation table's columns."""

    engine: str = "deduplicate"
    producer: str = "none"
    buckets: str = "1"
    partition: str = "none"
    vectors: bool = False
    format: str = "parquet"
    number: str = "BIGINT"
    waits: str = ""
    removals: str = ""
    functions: tuple[tuple[str, str], ...] = ()

    @property
    def keyed(self) -> bool:
        return self.engine != "append"

    @property
    def key(self) -> tuple[str, ...]:
        """The primary key; of an append table what its rows are told apart by in the model."""
        return ("p", "k") if self.partition == "key" and self.keyed else ("k",)

    @property
    def stays(self) -> bool:
        """Whether a row stays in its partition when a later row of its key names another one."""
        return self.partition == "across" and self.engine not in ("deduplicate", "sequenced")

    @property
    def hides(self) -> bool:
        """Whether a SELECT sees new rows only once they have been compacted."""
        return self.keyed and (self.vectors or self.engine == "first-row")

    @property
    def delays(self) -> bool:
        """Whether readers of the changes see rows only once they have been compacted."""
        return self.hides or self.producer in ("lookup", "full-compaction")

    @property
    def may_wait(self) -> bool:
        """Whether an option says that rows may wait for a compaction, and some would."""
        if self.waits == "delta-commits":
            return self.producer == "full-compaction"
        if self.waits in ("lookup-wait", "gentle"):
            return self.hides or self.producer == "lookup"
        return self.waits == "write-only" and self.delays

    @property
    def merged(self) -> dict[str, str]:
        """The merge function of each column that has one."""
        if self.engine == "group-sums":
            return {"v": "sum"}
        if self.engine != "aggregation":
            return {}
        return dict(self.functions) | ({"p": "last_value"} if self.partition == "none" else {})

    def options(self) -> dict[str, str]:
        """The table's options."""
        made = {"bucket": self.buckets, "file.format": self.format, **WAITS[self.waits]}
        if self.producer != "none":
            made["changelog-producer"] = self.producer
        if self.vectors:
            made["deletion-vectors.enabled"] = "true"
        if self.engine == "append":
            return {**made, "bucket-key": "k"} if self.buckets != "-1" else made
        return {**made, **self._merging(), **self._removing()}

    def _merging(self) -> dict[str, str]:
        if self.engine == "deduplicate":
            return {}
        if self.engine == "sequenced":
            return {"sequence.field": "w"}
        if self.engine in ("partial-update", "groups", "group-sums"):
            groups = {} if self.engine == "partial-update" else {"fields.w.sequence-group": "v,s"}
            sums = {"fields.v.aggregate-function": "sum"} if self.engine == "group-sums" else {}
            return {"merge-engine": "partial-update", **groups, **sums}
        if self.engine == "first-row":
            return {"merge-engine": "first-row"}
        made = {"merge-engine": "aggregation"}
        for column, function in self.merged.items():
            made[f"fields.{column}.aggregate-function"] = function
            if function in IGNORING:
                made[f"fields.{column}.ignore-retract"] = "true"
        return made

    def _removing(self) -> dict[str, str]:
        if self.removals == "ignore":
            return {"ignore-delete": "true"}
        if self.removals == "remove":
            engine = "aggregation" if self.engine == "aggregation" else "partial-update"
            return {f"{engine}.remove-record-on-delete": "true"}
        return {}

    def ddl(self, table: str) -> str:
        """The CREATE TABLE of `database.table`."""
        types = {"k": "INT", "p": "STRING", "g": "STRING", "v": self.number, "w": "INT"}
        columns = [f"{name} {types.get(name, 'STRING')}" for name in COLUMNS]
        if self.keyed:
            columns.append(f"PRIMARY KEY ({', '.join(self.key)}) NOT ENFORCED")
        parted = "" if self.partition == "none" else " PARTITIONED BY (p)"
        return f"CREATE TABLE {table} ({', '.join(columns)}){parted} {with_options(self.options())}"

    def named(self) -> Iterator[tuple[str, str]]:
        """Each dimension of the layout with this one's value."""
        yield "engine", self.engine
        yield "producer", self.producer
        yield "buckets", self.buckets
        yield "partition", self.partition
        yield "vectors", str(self.vectors).lower()
        yield "format", self.format
        yield "number", self.number
        yield "waits", self.waits or "no"
        yield "removals", self.removals or "no"
        for _, function in self.functions:
            yield "function", function

    def possible(self) -> bool:
        """Whether Paimon knows such a table."""
        if not self.keyed:
            plain = (
                self.producer == "none" and not self.vectors and self.waits in ("", "write-only")
            )
            return plain and not self.removals and self.partition != "across"
        if self.partition == "across" and (self.buckets != "-1" or self.engine == "sequenced"):
            return False
        if self.partition == "across" and not self.stays and self.removals == "ignore":
            # A row that moves would stay in its old partition, too.
            return False
        if self.engine == "first-row" and (self.vectors or self.producer not in ("none", "lookup")):
            return False
        if self.vectors and self.producer not in ("none", "lookup"):
            return False
        if self.waits in ("lookup-wait", "gentle", "delta-commits") and not self.may_wait:
            return False
        return self._removes_possibly()

    def _removes_possibly(self) -> bool:
        if self.removals == "ignore":
            return self.engine != "aggregation"
        if self.removals == "remove":
            ignores = any(function in IGNORING for _, function in self.functions)
            return self.engine in ("aggregation", "partial-update") and not ignores
        return True


def with_options(options: dict[str, str]) -> str:
    """`WITH (…)`."""
    return "WITH (" + ", ".join(f"'{key}' = '{value}'" for key, value in options.items()) + ")"


def drawn(random: Random, odd: float = 0.0, **given: Any) -> Layout:
    """A layout; with the probability `odd` one that Paimon may not know."""
    strange = random.random() < odd
    while True:
        engine = given.get("engine", random.choice(ENGINES))
        removals = "" if random.random() < 0.7 else random.choice(("ignore", "remove"))
        values: dict[str, Any] = {
            "engine": engine,
            "producer": random.choice(PRODUCERS),
            "buckets": random.choice(BUCKETS),
            "partition": random.choice(("none", "none", "key", "across")),
            "vectors": random.random() < 0.3,
            "format": random.choice(FORMATS),
            "number": random.choice(NUMBERS),
            "waits": random.choice(tuple(WAITS)) if random.random() < 0.3 else "",
            "removals": removals,
        }
        if engine == "aggregation":
            chosen = {name: random.choice(known) for name, known in FUNCTIONS.items()}
            values["functions"] = tuple(chosen.items())
        made = Layout(**{**values, **given})
        if strange or made.possible():
            return made
