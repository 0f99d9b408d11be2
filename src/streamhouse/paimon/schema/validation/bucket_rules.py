"""Rules for a table's buckets, checked by CREATE TABLE and ALTER TABLE.

The Rust core and pypaimon accept tables that the Java core refuses to open, and tables in which a
key can be in several buckets. This module applies the Java core's rules, and refuses tables that
could have several rows of a key.
"""

from collections.abc import Iterator, Sequence

from streamhouse.errors import OptionError, StreamhouseError, TableError
from streamhouse.paimon.schema.options.bucket_options import (
    POSTPONED,
    bucket_number,
    crosses_partitions,
    leaves_moved_rows,
)
from streamhouse.paimon.schema.options.option_columns import split_names
from streamhouse.paimon.schema.validation.declared_schema import DeclaredSchema

_BUCKET, _BUCKET_KEY, _FUNCTION = "bucket", "bucket-key", "bucket-function.type"
_FULL = "full-compaction.delta-commits"


def bucket_faults(schema: DeclaredSchema) -> Iterator[StreamhouseError]:
    """Buckets that the Java core would refuse, or with which a key could have several rows."""
    where, text = schema.where, schema.options.get(_BUCKET, "-1")
    bucket = bucket_number(schema.options)
    keys = [name for name in split_names(schema.options.get(_BUCKET_KEY, "")) if name]
    yield from _key_faults(schema, keys)
    if bucket == POSTPONED:
        yield OptionError(
            f"{where}: 'bucket' = '-2' (postponed buckets) is not supported: its rows would be "
            "invisible until a Flink job compacts them; write 'bucket' = '-1' (dynamic buckets) "
            "or a fixed number, such as 'bucket' = '4'"
        )
    elif bucket == -1:
        yield from _dynamic_faults(schema, keys)
    elif bucket < 1:
        yield OptionError(
            f"{where}: 'bucket' = '{text}'; write a number of buckets, 1 or more, or -1 for "
            "dynamic buckets"
        )
    elif not (schema.primary_key or keys):
        yield OptionError(
            f"{where}: 'bucket' = '{bucket}' without a primary key needs a 'bucket-key', the "
            "columns whose values decide the bucket of a row; or leave out 'bucket'"
        )
    else:
        own = [key for key in schema.primary_key if key not in schema.partition_keys]
        yield from _function_faults(schema, keys or own)
    yield from _cross_partition_faults(schema, bucket)


def _key_faults(schema: DeclaredSchema, keys: Sequence[str]) -> Iterator[StreamhouseError]:
    primary_key = schema.primary_key
    for key in keys:
        if key in schema.partition_keys:
            yield OptionError(
                f"{schema.where}: 'bucket-key' names the partition key '{key}', which is the "
                "same for all rows of a partition; leave it out"
            )
        elif primary_key and key not in primary_key:
            yield OptionError(
                f"{schema.where}: 'bucket-key' names '{key}', which is not part of the primary key "
                f"({', '.join(primary_key)}); a key could have rows in several buckets"
            )
    if primary_key and set(primary_key) == set(schema.partition_keys):
        yield TableError(
            f"{schema.where}: the primary key ({', '.join(primary_key)}) is also the partition "
            "key, so each partition would have one row; leave out PARTITIONED BY"
        )


def _dynamic_faults(schema: DeclaredSchema, keys: Sequence[str]) -> Iterator[StreamhouseError]:
    if keys:
        yield OptionError(
            f"{schema.where}: 'bucket-key' needs a fixed number of buckets: add, say, 'bucket' = "
            "'4', or leave out 'bucket-key'"
        )
    if not schema.primary_key and _FULL in schema.options:
        yield OptionError(
            f"{schema.where}: '{_FULL}' is for tables with a primary key, or with a fixed "
            "number of buckets; leave it out"
        )


def _cross_partition_faults(schema: DeclaredSchema, bucket: int) -> Iterator[StreamhouseError]:
    """Only dynamic buckets have the index that finds a key in another partition."""
    if not crosses_partitions(schema.primary_key, schema.partition_keys):
        return
    problem = (
        f"{schema.where}: the primary key ({', '.join(schema.primary_key)}) does not include "
        f"the partition key ({', '.join(schema.partition_keys)})"
    )
    if bucket != -1:
        yield TableError(
            f"{problem}, so with 'bucket' = '{bucket}' a key could have a row in each partition; "
            "declare 'bucket' = '-1', or add the partition key to the primary key if it should"
        )
    elif "sequence.field" in schema.options:
        yield TableError(
            f"{problem}, and Paimon then allows no 'sequence.field'; leave it out (the row written "
            "last then wins), or add the partition key to the primary key (a key then has a row in "
            "each partition)"
        )
    elif leaves_moved_rows(schema.primary_key, schema.partition_keys, schema.options):
        yield TableError(
            f"{problem}, so a row that moves to another partition is deleted from its old one, and "
            "'ignore-delete' keeps it there as well; leave out 'ignore-delete', or add the "
            "partition key to the primary key (a key then has a row in each partition)"
        )


def _function_faults(schema: DeclaredSchema, keys: Sequence[str]) -> Iterator[StreamhouseError]:
    one_number = len(keys) == 1 and schema.root(keys[0]) in ("INT", "BIGINT")
    if schema.option(_FUNCTION) == "mod" and not one_number:
        names = ", ".join(f"{key} {schema.texts.get(key, '')}" for key in keys)
        yield OptionError(
            f"{schema.where}: '{_FUNCTION}' = 'mod' needs one bucket key of type INT or BIGINT, "
            f"but the bucket key is ({names})"
        )
