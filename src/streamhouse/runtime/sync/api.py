"""Python functions that sync MySQL tables and databases; `streamhouse` exports them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.runtime.sync.options import SyncOptions, sync_database_options, sync_table_options
from streamhouse.runtime.sync.progress import Listener
from streamhouse.runtime.sync.run import SyncRun, run_sync


def sync_mysql_table(
    warehouse: str | Mapping[str, str],
    database: str,
    table: str,
    mysql_conf: Mapping[str, str],
    *,
    partition_keys: Sequence[str] = (),
    primary_keys: Sequence[str] = (),
    type_mapping: Sequence[str] = (),
    computed_column: Sequence[str] = (),
    metadata_column: Sequence[str] = (),
    metadata_column_prefix: str = "",
    sync_primary_keys_from_source_schema: bool = True,
    table_conf: Mapping[str, str] | None = None,
    skip_unsupported: bool = False,
    schema_change_behavior: str | None = None,
    include_schema_changes: Sequence[str] = (),
    exclude_schema_changes: Sequence[str] = (),
    name: str | None = None,
    until_caught_up: bool = False,
    stopped: Callable[[], bool] = lambda: False,
    notice: Callable[[str], None] = print,
    listener: Listener | None = None,
) -> list[Mapping[str, object]]:
    """Follow one or several MySQL tables into one Paimon table, as `streamhouse sync mysql-table`.

    `warehouse` is a folder, a URI or catalog options. `mysql_conf` has the options of a
    `mysql-cdc` table, with regular expressions for `database-name` and `table-name`. Uses the
    active Spark session, or starts one. Blocks until `stopped` returns True or, with
    `until_caught_up`, until nothing is left to read. Called again with the same `name` (default:
    `sync-` and the target), it goes on where it was; each change is written once, also after a
    crash. `notice` gets messages, `listener` a `Report` every few seconds. Returns the last state
    of each table: `table`, `target`, `complete`, `snapshot_rows`, `estimate`, `changes`, `lag_s`.
    Raises `OptionError`, `TableError`, `ConnectError`, and `QueryFailed` for a failure while it
    runs.

        >>> sync_mysql_table("warehouse", "ods", "orders", {
        ...     "hostname": "localhost", "username": "reader", "password": "secret",
        ...     "database-name": "shop_\\\\d+", "table-name": "orders",
        ... })  # doctest: +SKIP
    """
    options = sync_table_options(
        Warehouse(warehouse).options,
        database,
        table,
        mysql_conf,
        partition_keys=partition_keys,
        primary_keys=primary_keys,
        type_mapping=type_mapping,
        computed_column=computed_column,
        metadata_column=metadata_column,
        metadata_column_prefix=metadata_column_prefix,
        sync_primary_keys_from_source_schema=sync_primary_keys_from_source_schema,
        table_conf=table_conf,
        skip_unsupported=skip_unsupported,
        schema_change_behavior=schema_change_behavior,
        include_schema_changes=include_schema_changes,
        exclude_schema_changes=exclude_schema_changes,
    )
    return _followed(options, name, until_caught_up, stopped, notice, listener)


def sync_mysql_database(
    warehouse: str | Mapping[str, str],
    database: str,
    mysql_conf: Mapping[str, str],
    *,
    including_tables: str = ".*",
    excluding_tables: str | None = None,
    table_prefix: str = "",
    table_suffix: str = "",
    table_prefix_db: Mapping[str, str] | None = None,
    table_suffix_db: Mapping[str, str] | None = None,
    table_mapping: Mapping[str, str] | None = None,
    including_dbs: str = ".*",
    excluding_dbs: str | None = None,
    multiple_table_partition_keys: Mapping[str, str] | None = None,
    merge_shards: bool = True,
    ignore_incompatible: bool = False,
    skip_unsupported: bool = False,
    schema_change_behavior: str | None = None,
    include_schema_changes: Sequence[str] = (),
    exclude_schema_changes: Sequence[str] = (),
    mode: str = "combined",
    partition_keys: Sequence[str] = (),
    primary_keys: Sequence[str] = (),
    type_mapping: Sequence[str] = (),
    computed_column: Sequence[str] = (),
    metadata_column: Sequence[str] = (),
    metadata_column_prefix: str = "",
    sync_primary_keys_from_source_schema: bool = True,
    table_conf: Mapping[str, str] | None = None,
    name: str | None = None,
    until_caught_up: bool = False,
    stopped: Callable[[], bool] = lambda: False,
    notice: Callable[[str], None] = print,
    listener: Listener | None = None,
) -> list[Mapping[str, object]]:
    """Follow whole MySQL databases into a Paimon database, as `streamhouse sync mysql-database`.

    For the arguments, what it returns and raises see `sync_mysql_table`; `mysql_conf` has no
    `table-name`, and the other arguments are the flags of the command.
    """
    options = sync_database_options(
        Warehouse(warehouse).options,
        database,
        mysql_conf,
        including_tables=including_tables,
        excluding_tables=excluding_tables,
        table_prefix=table_prefix,
        table_suffix=table_suffix,
        table_prefix_db=table_prefix_db,
        table_suffix_db=table_suffix_db,
        table_mapping=table_mapping,
        including_dbs=including_dbs,
        excluding_dbs=excluding_dbs,
        multiple_table_partition_keys=multiple_table_partition_keys,
        merge_shards=merge_shards,
        ignore_incompatible=ignore_incompatible,
        skip_unsupported=skip_unsupported,
        schema_change_behavior=schema_change_behavior,
        include_schema_changes=include_schema_changes,
        exclude_schema_changes=exclude_schema_changes,
        mode=mode,
        partition_keys=partition_keys,
        primary_keys=primary_keys,
        type_mapping=type_mapping,
        computed_column=computed_column,
        metadata_column=metadata_column,
        metadata_column_prefix=metadata_column_prefix,
        sync_primary_keys_from_source_schema=sync_primary_keys_from_source_schema,
        table_conf=table_conf,
    )
    return _followed(options, name, until_caught_up, stopped, notice, listener)


def _followed(
    options: SyncOptions,
    name: str | None,
    until_caught_up: bool,
    stopped: Callable[[], bool],
    notice: Callable[[str], None],
    listener: Listener | None,
) -> list[Mapping[str, object]]:
    run = SyncRun(
        options,
        name,
        until_caught_up=until_caught_up,
        stopped=stopped,
        notice=notice,
        listener=listener,
    )
    return run_sync(run)
