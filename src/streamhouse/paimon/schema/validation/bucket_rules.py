"""Rules for a table's buckets, checked by CREATE TABLE and ALTER TABLE.

The Rust core and pypaimon accept tables that the Java core refuses to open, and tables in which a
key can be in several buckets. This module applies the Java core's rules, and refuses tables that
could have several rows of a key.
"""

from collections.abc import Sequence

from streamhouse.close_matches import nearest
from streamhouse.errors import OptionError, TableError
from streamhouse.paimon.schema.options.bucket_options import (
    POSTPONED,
    crosses_partitions,
    leaves_moved_rows,
)
from streamhouse.paimon.schema.options.option_columns import split_names
from streamhouse.paimon.schema.validation.declared_schema import NESTED, DeclaredSchema

BUCKET, BUCKET_KEY, FUNCTION = "bucket", "bucket-key", "bucket-function.type"
_FULL = "full-compaction.delta-commits"
_FUNCTIONS = ("default", "mod", "hive")


def check_buckets(schema: DeclaredSchema) -> None:
    """Check a table's buckets.

    Raises `OptionError` or `TableError` for a table that the Java core would not open, or that
    could have several rows of a key.
    """
    bucket = _bucket_number(schema.where, schema.options.get(BUCKET, "-1"))
    keys = [name for name in split_names(schema.options.get(BUCKET_KEY, "")) if name]
    _check_keys(schema, keys)
    if bucket == -1:
        _check_dynamic_buckets(schema, keys)
    elif not (schema.primary_key or keys):
        raise OptionError(
            f"{schema.where}: 'bucket' = '{bucket}' without a primary key needs a 'bucket-key', "
            "the columns whose values decide the bucket of a row; or leave out 'bucket'"
        )
    _check_cross_partition(schema, bucket)
    if bucket > 0:
        own = [key for key in schema.primary_key if key not in schema.partition_keys]
        _check_function(schema, keys or own)


def _bucket_number(where: str, text: str) -> int:
    try:
        bucket = int(text)
    except ValueError:
        bucket = 0
    if bucket == POSTPONED:
        raise OptionError(
            f"{where}: 'bucket' = '-2' (postponed buckets) is not supported: its rows would be "
            "invisible until a Flink job compacts them; write 'bucket' = '-1' (dynamic buckets) "
            "or a fixed number, such as 'bucket' = '4'"
        )
    if bucket < 1 and bucket != -1:
        raise OptionError(
            f"{where}: 'bucket' = '{text}'; write a number of buckets, 1 or more, or -1 for "
            "dynamic buckets"
        )
    return bucket


def _check_keys(schema: DeclaredSchema, keys: Sequence[str]) -> None:
    columns, primary_key = schema.texts, schema.primary_key
    for key in keys:
        if key not in columns:
            raise OptionError(
                f"{schema.where}: 'bucket-key' names '{key}', which is not a column; "
                f"{nearest(key, columns)}"
            )
        if key in schema.partition_keys:
            raise OptionError(
                f"{schema.where}: 'bucket-key' names the partition key '{key}', which is the "
                "same for all rows of a partition; leave it out"
            )
        if primary_key and key not in primary_key:
            raise OptionError(
                f"{schema.where}: 'bucket-key' names '{key}', which is not part of the primary key "
                f"({', '.join(primary_key)}); a key could have rows in several buckets"
            )
        if schema.root(key) in NESTED:
            raise OptionError(
                f"{schema.where}: 'bucket-key' names '{key}', which is {columns[key]}; ARRAY, MAP, "
                "MULTISET and ROW columns cannot be bucket keys"
            )
    if primary_key and set(primary_key) == set(schema.partition_keys):
        raise TableError(
            f"{schema.where}: the primary key ({', '.join(primary_key)}) is also the partition "
            "key, so each partition would have one row; leave out PARTITIONED BY"
        )


def _check_dynamic_buckets(schema: DeclaredSchema, keys: Sequence[str]) -> None:
    if keys:
        raise OptionError(
            f"{schema.where}: 'bucket-key' needs a fixed number of buckets: add, say, 'bucket' = "
            "'4', or leave out 'bucket-key'"
        )
    if not schema.primary_key and _FULL in schema.options:
        raise OptionError(
            f"{schema.where}: '{_FULL}' is for tables with a primary key, or with a fixed "
            "number of buckets; leave it out"
        )


def _check_cross_partition(schema: DeclaredSchema, bucket: int) -> None:
    """Only dynamic buckets have the index that finds a key in another partition."""
    if not crosses_partitions(schema.primary_key, schema.partition_keys):
        return
    problem = (
        f"{schema.where}: the primary key ({', '.join(schema.primary_key)}) does not include "
        f"the partition key ({', '.join(schema.partition_keys)})"
    )
    if bucket != -1:
        raise TableError(
            f"{problem}, so with 'bucket' = '{bucket}' a key could have a row in each partition; "
            "declare 'bucket' = '-1', or add the partition key to the primary key if it should"
        )
    if "sequence.field" in schema.options:
        raise TableError(
            f"{problem}, and Paimon then allows no 'sequence.field'; leave it out (the row written "
            "last then wins), or add the partition key to the primary key (a key then has a row in "
            "each partition)"
        )
    if leaves_moved_rows(schema.primary_key, schema.partition_keys, schema.options):
        raise TableError(
            f"{problem}, so a row that moves to another partition is deleted from its old one, and "
            "'ignore-delete' keeps it there as well; leave out 'ignore-delete', or add the "
            "partition key to the primary key (a key then has a row in each partition)"
        )


def _check_function(schema: DeclaredSchema, keys: Sequence[str]) -> None:
    function = schema.option(FUNCTION, "default")
    if function not in _FUNCTIONS:
        raise OptionError(
            f"{schema.where}: '{FUNCTION}' = '{function}'; write one of {', '.join(_FUNCTIONS)}"
        )
    if function != "mod":
        return
    valid = len(keys) == 1 and schema.root(keys[0]) in ("INT", "BIGINT")
    if not valid:
        names = ", ".join(f"{key} {schema.texts[key]}" for key in keys)
        raise OptionError(
            f"{schema.where}: '{FUNCTION}' = 'mod' needs one bucket key of type INT or BIGINT, but "
            f"the bucket key is ({names})"
        )
