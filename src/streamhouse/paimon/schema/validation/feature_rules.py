"""Rules for options that need each other, exclude each other, or need keys."""

from collections.abc import Iterator, Sequence

from streamhouse.errors import OptionError, StreamhouseError
from streamhouse.options import table_of
from streamhouse.paimon.schema.options.option_columns import split_names
from streamhouse.paimon.schema.validation.declared_schema import DeclaredSchema

_TABLE = table_of(__package__, "feature_rules.toml")
_VECTORS = ("deletion-vectors.enabled", "true")
_CLUSTERING = ("clustering.incremental", "true")
_CHAIN = ("chain-table.enabled", "true")


def combination_faults(schema: DeclaredSchema) -> Iterator[StreamhouseError]:
    """Options that exclude each other, or lack others that they need."""
    for one, other in _TABLE["exclude"]:
        if _has(schema, one) and _has(schema, other):
            yield OptionError(
                f"{schema.where}: options {_text(one)} and {_text(other)} exclude each other: "
                "Paimon's Java core refuses to open such a table; leave one of them out"
            )
    for one, other in _TABLE["need"]:
        if _has(schema, one) and not _has(schema, other):
            yield OptionError(f"{schema.where}: option {_text(one)} needs {_text(other)}; set both")
    for remove, suffixes in _TABLE["removes"].items():
        for key, value in schema.options.items() if schema.is_true(remove) else ():
            if key.endswith(tuple(suffixes)) and value.lower() != "false":
                yield OptionError(
                    f"{schema.where}: options '{remove}' and '{key}' exclude each other: the first "
                    "removes a row with all its columns; leave one of them out"
                )


def _has(schema: DeclaredSchema, pair: Sequence[str]) -> bool:
    key, value = pair
    return key in schema.options and value in ("", schema.option(key))


def _text(pair: Sequence[str]) -> str:
    return f"'{pair[0]}' = '{pair[1]}'" if pair[1] else f"'{pair[0]}'"


def table_kind_faults(schema: DeclaredSchema) -> Iterator[StreamhouseError]:
    """Options that need a primary key, partitions or buckets, or cannot have them."""
    producer = schema.option("changelog-producer", "none")
    changes = () if producer == "none" else (("changelog-producer", producer),)
    for pairs, bad, what in (
        (
            [*changes, *_TABLE["need_key"]],
            not schema.primary_key,
            "needs a table with a PRIMARY KEY",
        ),
        (_TABLE["forbid_key"], bool(schema.primary_key), "needs a table without a PRIMARY KEY"),
        (_TABLE["need_partitions"], not schema.partition_keys, "needs a table with partitions"),
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


def start_faults(schema: DeclaredSchema) -> Iterator[StreamhouseError]:
    """Options by which all reads would start at one place; the cores write no such table."""
    starts = [key for key in _TABLE["starts"] if key in schema.options]
    if schema.option("scan.mode") in _TABLE["start_modes"]:
        starts.append("scan.mode")
    for key in starts:
        yield OptionError(
            f"{schema.where}: option '{key}' = '{schema.options[key]}' says which rows one read "
            "returns, so it cannot be stored with a table; give it to that read: SELECT … FROM t "
            f"/*+ OPTIONS('{key}' = '…') */"
        )
