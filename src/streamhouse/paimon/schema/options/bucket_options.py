"""What the options of a table's buckets, and its keys, say of where a row may be."""

from collections.abc import Mapping, Sequence

POSTPONED = -2
"""Postponed buckets: rows get a bucket, and become visible, only when Flink compacts them."""


def bucket_number(options: Mapping[str, str]) -> int:
    """The option `bucket`, by default -1; 0 if it is no number, which no table can have."""
    try:
        return int(options.get("bucket", "-1"))
    except ValueError:
        return 0


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
