"""Replaces or removes all rows of a table or of partitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pypaimon_rust.datafusion import CommitMessage

from streamhouse.errors import TableError
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.storage import rust_core
from streamhouse.paimon.storage.lock import commit_lock
from streamhouse.paimon.write.merge_rules.sum_limits import check_overwritten_sums
from streamhouse.paimon.write.table_writer import overwrite_builder, writable, write_error


def overwrite_table(
    table: Table,
    commit_user: str,
    messages: Sequence[bytes],
    table_options: Mapping[str, str] | None = None,
    partition: Mapping[str, Any] | None = None,
) -> None:
    """Replace a table's rows by those of `messages`, in one snapshot; driver.

    In a partitioned table, this replaces only the partitions written to; with the option
    `dynamic-partition-overwrite` = `false`, all of them. If a `partition` is given (column to
    value, for some or all partition keys), it replaces the partitions with these values. Raises
    `TableError` if a sum exceeds its column's type.
    """
    builder = overwrite_builder(writable(table, None, table_options), commit_user, partition)
    commit = builder.new_commit()
    commit_messages = [CommitMessage.deserialize(message) for message in messages]
    try:
        check_overwritten_sums(table, messages)
    except TableError:
        commit.abort(commit_messages)
        raise
    try:
        with commit_lock(table.location):
            commit.commit(commit_messages)
    except rust_core.ERRORS as error:
        raise write_error(table, error) from error


def truncate_table(table: Table, commit_user: str) -> None:
    """Delete all rows of a table, in one snapshot; driver."""
    try:
        with commit_lock(table.location):
            overwrite_builder(writable(table), commit_user).new_commit().truncate_table()
    except rust_core.ERRORS as error:
        raise write_error(table, error) from error
