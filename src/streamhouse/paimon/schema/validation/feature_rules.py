"""Rules for options that need each other, exclude each other, or need keys."""

from __future__ import annotations

from collections.abc import Iterator

from streamhouse.errors import OptionError, StreamhouseError
from streamhouse.paimon.schema.options.option_columns import split_names
from streamhouse.paimon.schema.validation.declared_schema import DeclaredSchema

_VECTORS = ("deletion-vectors.enabled", "true")
_FIRST_ROW = ("merge-engine", "first-row")
_OVERWRITES = ("streaming-read-overwrite", "true")
_EVOLUTION = ("data-evolution.enabled", "true")
_CLUSTERING = ("clustering.incremental", "true")
_CHAIN = ("chain-table.enabled", "true")
_OVERRIDE = ("pk-clustering-override", "true")
_FULL, _LOOKUP = ("changelog-producer", "full-compaction"), ("changelog-producer", "lookup")
_PAIRS = (
    (_VECTORS, _FULL),
    (_VECTORS, _FIRST_ROW),
    (_FIRST_ROW, ("changelog-producer", "input")),
    (_FIRST_ROW, _FULL),
    (_OVERWRITES, _FULL),
    (_OVERWRITES, _LOOKUP),
    (_EVOLUTION, _VECTORS),
    (_EVOLUTION, _CLUSTERING),
    (_CHAIN, _VECTORS),
    *((_CHAIN, producer) for producer in (_FULL, _LOOKUP)),
    *((_OVERRIDE, producer) for producer in (_FULL, _LOOKUP)),
    *((_OVERRIDE, ("merge-engine", engine)) for engine in ("aggregation", "partial-update")),
    (_OVERRIDE, ("record-level.expire-time", "")),
    (_OVERRIDE, ("sequence.field", "")),
    (("ignore-delete", "true"), ("partial-update.remove-record-on-sequence-group", "")),
)
"""Option values that exclude each other; an empty value stands for any."""
_NEEDS = (
    (_EVOLUTION, ("row-tracking.enabled", "true")),
    (_CHAIN, ("sequence.field", "")),
    (_CHAIN, ("partition.timestamp-pattern", "")),
    (_CHAIN, ("partition.timestamp-formatter", "")),
    (_OVERRIDE, ("clustering.columns", "")),
    (_OVERRIDE, _VECTORS),
    (("record-level.expire-time", ""), ("record-level.time-field", "")),
    (("sequence.field.sort-order", "descending"), ("sequence.field", "")),
)
"""Option values, and those that they need."""
_NEEDS_KEY = (_OVERWRITES, _CHAIN, ("table-read.sequence-number.enabled", "true"))
_FORBIDS_KEY = (("row-tracking.enabled", "true"), _CLUSTERING, ("upsert-key", ""))
_NEEDS_PARTITIONS = (("partition.expiration-time", ""), _CHAIN)
_REMOVES = {
    "aggregation.remove-record-on-delete": (".ignore-retract",),
    "partial-update.remove-record-on-delete": ("ignore-delete", ".sequence-group"),
}


def combination_faults(schema: DeclaredSchema) -> Iterator[StreamhouseError]:
    """Options that exclude each other, or lack others that they need."""
    for one, other in _PAIRS:
        if _has(schema, one) and _has(schema, other):
            yield OptionError(
                f"{schema.where}: options {_text(one)} and {_text(other)} exclude each other: "
                "Paimon's Java core refuses to open such a table; leave one of them out"
            )
    for one, other in _NEEDS:
        if _has(schema, one) and not _has(schema, other):
            yield OptionError(f"{schema.where}: option {_text(one)} needs {_text(other)}; set both")
    for remove, suffixes in _REMOVES.items():
        for key, value in schema.options.items() if schema.is_true(remove) else ():
            if key.endswith(suffixes) and value.lower() != "false":
                yield OptionError(
                    f"{schema.where}: options '{remove}' and '{key}' exclude each other: the first "
                    "removes a row with all its columns; leave one of them out"
                )


def _has(schema: DeclaredSchema, pair: tuple[str, str]) -> bool:
    key, value = pair
    return key in schema.options and value in ("", schema.option(key))


def _text(pair: tuple[str, str]) -> str:
    return f"'{pair[0]}' = '{pair[1]}'" if pair[1] else f"'{pair[0]}'"


def table_kind_faults(schema: DeclaredSchema) -> Iterator[StreamhouseError]:
    """Options that need a primary key, partitions or buckets, or cannot have them."""
    producer = schema.option("changelog-producer", "none")
    changes = () if producer == "none" else (("changelog-producer", producer),)
    for pairs, bad, what in (
        ([*changes, *_NEEDS_KEY], not schema.primary_key, "needs a table with a PRIMARY KEY"),
        (_FORBIDS_KEY, bool(schema.primary_key), "needs a table without a PRIMARY KEY"),
        (_NEEDS_PARTITIONS, not schema.partition_keys, "needs a table with partitions"),
    ):
        for pair in pairs:
            if bad and _has(schema, pair):
                yield OptionError(f"{schema.where}: option {_text(pair)} {what}; leave it out")
    fixed = schema.option("bucket", "-1") != "-1"
    if fixed and schema.is_true("row-tracking.enabled"):
        yield _needs(schema, "row-tracking.enabled", "'bucket' = '-1'")
    if fixed and _has(schema, _CLUSTERING):
        if schema.option("bucket-append-ordered", "true") != "false":
            yield _needs(schema, _CLUSTERING[0], "'bucket-append-ordered' = 'false', or no buckets")
        if _has(schema, _VECTORS):
            yield _needs(schema, _CLUSTERING[0], "no 'deletion-vectors.enabled', or no buckets")
    if _has(schema, _CHAIN):
        if not fixed:
            yield _needs(schema, _CHAIN[0], "a fixed number of buckets, say 'bucket' = '4'")
        keys = split_names(schema.options.get("chain-table.chain-partition-keys", ""))
        if keys != [""] and list(schema.partition_keys)[-len(keys) :] != keys:
            yield _needs(schema, "chain-table.chain-partition-keys", "the last partition keys")


def _needs(schema: DeclaredSchema, key: str, what: str) -> OptionError:
    return OptionError(f"{schema.where}: option '{key}' needs {what}")


def retention_faults(schema: DeclaredSchema) -> Iterator[StreamhouseError]:
    """Numbers of snapshots and changelogs to retain that contradict each other."""
    defaults = {"min": 10, "max": 2**31 - 1}
    for kind in ("snapshot", "changelog"):
        keys = {end: f"{kind}.num-retained.{end}" for end in defaults}
        try:
            given = {end: schema.options.get(key, defaults[end]) for end, key in keys.items()}
            defaults = {end: int(value) for end, value in given.items()}
        except ValueError:
            return
        if defaults["min"] < 1:
            yield _needs(schema, keys["min"], "a number of at least 1")
        if defaults["min"] > defaults["max"]:
            yield OptionError(
                f"{schema.where}: option '{keys['min']}' ({defaults['min']}) must not be greater "
                f"than '{keys['max']}' ({defaults['max']})"
            )


_STARTS = (
    "scan.snapshot-id", "scan.tag-name", "scan.version", "scan.watermark", "scan.timestamp",
    "scan.timestamp-millis", "scan.file-creation-time-millis", "incremental-between",
    "incremental-between-timestamp", "incremental-to-auto-tag",
)  # fmt: skip
_START_MODES = ("incremental", "from-timestamp", "from-snapshot", "from-snapshot-full")
"""Modes of a scan that need an option of `_STARTS`."""


def start_faults(schema: DeclaredSchema) -> Iterator[StreamhouseError]:
    """Options by which all reads would start at one place; the cores write no such table."""
    starts = [key for key in _STARTS if key in schema.options]
    if schema.option("scan.mode") in (*_START_MODES, "from-file-creation-time"):
        starts.append("scan.mode")
    for key in starts:
        yield OptionError(
            f"{schema.where}: option '{key}' = '{schema.options[key]}' says which rows one read "
            "returns, so it cannot be stored with a table; give it to that read: SELECT … FROM t "
            f"/*+ OPTIONS('{key}' = '…') */"
        )
