"""Rules for a table's buckets, checked by CREATE TABLE and ALTER TABLE.

The Rust core and pypaimon accept tables that the Java core refuses to open, and tables in which a
key can be in several buckets. This module applies the Java core's rules, and refuses tables that
could have several rows of a key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from streamhouse.close_matches import nearest
from streamhouse.errors import OptionError, TableError

BUCKET, BUCKET_KEY, FUNCTION = "bucket", "bucket-key", "bucket-function.type"
POSTPONED = -2
"""Postponed buckets: rows get a bucket, and become visible, only when Flink compacts them."""
_FULL = "full-compaction.delta-commits"
_FUNCTIONS = ("default", "mod", "hive")
_NESTED = ("ARRAY", "MAP", "ROW", "MULTISET")


def check_buckets(
    where: str,
    columns: Mapping[str, str],
    primary_key: Sequence[str],
    partition_keys: Sequence[str],
    options: Mapping[str, str],
) -> None:
    """Check a table's buckets; `columns` maps names to types.

    Raises `OptionError` or `TableError` for a table that the Java core would not open, or that
    could have several rows of a key.
    """
    bucket = _bucket_number(where, options.get(BUCKET, "-1"))
    keys = _names(options.get(BUCKET_KEY, ""))
    _check_keys(where, columns, primary_key, partition_keys, keys)
    if bucket == -1:
        _check_dynamic_buckets(where, primary_key, keys, options)
    elif not (primary_key or keys):
        raise OptionError(
            f"{where}: 'bucket' = '{bucket}' without a primary key needs a 'bucket-key', the "
            "columns whose values decide the bucket of a row; or leave out 'bucket'"
        )
    _check_cross_partition(where, primary_key, partition_keys, bucket, options)
    if bucket > 0:
        bucket_keys = keys or [key for key in primary_key if key not in partition_keys]
        _check_function(where, columns, bucket_keys, options.get(FUNCTION, "default").lower())


def crosses_partitions(primary_key: Sequence[str], partition_keys: Sequence[str]) -> bool:
    """Whether a key may move from one partition to another (cross-partition upsert)."""
    return bool(primary_key) and not set(partition_keys) <= set(primary_key)


def leaves_moved_rows(
    primary_key: Sequence[str], partition_keys: Sequence[str], options: Mapping[str, str]
) -> bool:
    """Whether `ignore-delete` would leave a row in its partition when its key moves to another.

    Only `deduplicate` moves rows; the other merge engines keep a key in its first partition.
    """
    return (
        crosses_partitions(primary_key, partition_keys)
        and options.get("ignore-delete", "").lower() == "true"
        and options.get("merge-engine", "deduplicate").lower() == "deduplicate"
    )


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


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _check_keys(
    where: str,
    columns: Mapping[str, str],
    primary_key: Sequence[str],
    partition_keys: Sequence[str],
    keys: Sequence[str],
) -> None:
    for key in keys:
        if key not in columns:
            raise OptionError(
                f"{where}: 'bucket-key' names '{key}', which is not a column; "
                f"{nearest(key, columns)}"
            )
        if key in partition_keys:
            raise OptionError(
                f"{where}: 'bucket-key' names the partition key '{key}', which is the same for all "
                "rows of a partition; leave it out"
            )
        if primary_key and key not in primary_key:
            raise OptionError(
                f"{where}: 'bucket-key' names '{key}', which is not part of the primary key "
                f"({', '.join(primary_key)}); a key could have rows in several buckets"
            )
        if columns[key].upper().startswith(_NESTED):
            raise OptionError(
                f"{where}: 'bucket-key' names '{key}', which is {columns[key]}; ARRAY, MAP, "
                "MULTISET and ROW columns cannot be bucket keys"
            )
    if primary_key and set(primary_key) == set(partition_keys):
        raise TableError(
            f"{where}: the primary key ({', '.join(primary_key)}) is also the partition key, so "
            "each partition would have one row; leave out PARTITIONED BY"
        )


def _check_dynamic_buckets(
    where: str, primary_key: Sequence[str], keys: Sequence[str], options: Mapping[str, str]
) -> None:
    if keys:
        raise OptionError(
            f"{where}: 'bucket-key' needs a fixed number of buckets: add, say, 'bucket' = '4', or "
            "leave out 'bucket-key'"
        )
    if not primary_key and _FULL in options:
        raise OptionError(
            f"{where}: '{_FULL}' is for tables with a primary key, or with a fixed number of "
            "buckets; leave it out"
        )


def _check_cross_partition(
    where: str,
    primary_key: Sequence[str],
    partition_keys: Sequence[str],
    bucket: int,
    options: Mapping[str, str],
) -> None:
    """Only dynamic buckets have the index that finds a key in another partition."""
    if not crosses_partitions(primary_key, partition_keys):
        return
    problem = (
        f"{where}: the primary key ({', '.join(primary_key)}) does not include the partition key "
        f"({', '.join(partition_keys)})"
    )
    if bucket != -1:
        raise TableError(
            f"{problem}, so with 'bucket' = '{bucket}' a key could have a row in each partition; "
            "declare 'bucket' = '-1', or add the partition key to the primary key if it should"
        )
    if "sequence.field" in options:
        raise TableError(
            f"{problem}, and Paimon then allows no 'sequence.field'; leave it out (the row written "
            "last then wins), or add the partition key to the primary key (a key then has a row in "
            "each partition)"
        )
    if leaves_moved_rows(primary_key, partition_keys, options):
        raise TableError(
            f"{problem}, so a row that moves to another partition is deleted from its old one, and "
            "'ignore-delete' keeps it there as well; leave out 'ignore-delete', or add the "
            "partition key to the primary key (a key then has a row in each partition)"
        )


def _check_function(
    where: str, columns: Mapping[str, str], keys: Sequence[str], function: str
) -> None:
    if function not in _FUNCTIONS:
        raise OptionError(
            f"{where}: '{FUNCTION}' = '{function}'; write one of {', '.join(_FUNCTIONS)}"
        )
    if function != "mod":
        return
    valid = len(keys) == 1 and columns[keys[0]].upper().split()[0] in ("INT", "INTEGER", "BIGINT")
    if not valid:
        names = ", ".join(f"{key} {columns[key]}" for key in keys)
        raise OptionError(
            f"{where}: '{FUNCTION}' = 'mod' needs one bucket key of type INT or BIGINT, but the "
            f"bucket key is ({names})"
        )
