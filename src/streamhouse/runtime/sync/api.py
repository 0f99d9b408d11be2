"""Python functions that sync MySQL tables and databases; `streamhouse` exports them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Unpack

from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.runtime.sync.options import (
    DatabaseArguments,
    SyncOptions,
    TableArguments,
    sync_database_options,
    sync_table_options,
)
from streamhouse.runtime.sync.run import Listener, SyncRun, run_sync


def sync_mysql_table(
    warehouse: str | Mapping[str, str],
    database: str,
    table: str,
    mysql_conf: Mapping[str, str],
    *,
    name: str | None = None,
    until_caught_up: bool = False,
    from_scratch: bool = False,
    stopped: Callable[[], bool] = lambda: False,
    notice: Callable[[str], None] = print,
    listener: Listener | None = None,
    **arguments: Unpack[TableArguments],
) -> list[Mapping[str, object]]:
    """Follow one or several MySQL tables into one Paimon table, as `streamhouse sync mysql-table`.

    `warehouse` is a folder, a URI or catalog options. `mysql_conf` has the options of a `mysql-cdc`
    table, with regular expressions for `database-name` and `table-name`. Uses the active Spark
    session, or starts one. Blocks until `stopped` returns True or, with `until_caught_up`, until
    nothing is left to read. Called again with the same `name` (default: `sync-` and the target), it
    goes on where it was; each change is written once, also after a crash. With `from_scratch` it
    forgets where it was, reads the tables again, and writes the differences. The other arguments
    are the flags of the command, with underscores. `notice` gets messages, `listener` a `Report`
    every few seconds. Returns the last state of each table: `table`, `target`, `complete`,
    `snapshot_rows`, `estimate`, `changes`, `lag_s`. Raises `OptionError`, `TableError`,
    `ConnectError`, and `QueryFailed` for a failure while it runs.

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
        **arguments,
    )
    return _followed(options, name, until_caught_up, from_scratch, stopped, notice, listener)


def sync_mysql_database(
    warehouse: str | Mapping[str, str],
    database: str,
    mysql_conf: Mapping[str, str],
    *,
    name: str | None = None,
    until_caught_up: bool = False,
    from_scratch: bool = False,
    stopped: Callable[[], bool] = lambda: False,
    notice: Callable[[str], None] = print,
    listener: Listener | None = None,
    **arguments: Unpack[DatabaseArguments],
) -> list[Mapping[str, object]]:
    """Follow whole MySQL databases into a Paimon database, as `streamhouse sync mysql-database`.

    For the arguments, what it returns and raises see `sync_mysql_table`; `mysql_conf` has no
    `table-name`.
    """
    options = sync_database_options(
        Warehouse(warehouse).options,
        database,
        mysql_conf,
        **arguments,
    )
    return _followed(options, name, until_caught_up, from_scratch, stopped, notice, listener)


def _followed(
    options: SyncOptions,
    name: str | None,
    until_caught_up: bool,
    from_scratch: bool,
    stopped: Callable[[], bool],
    notice: Callable[[str], None],
    listener: Listener | None,
) -> list[Mapping[str, object]]:
    """Run a sync to its end."""
    return run_sync(
        SyncRun(
            options,
            name,
            until_caught_up=until_caught_up,
            from_scratch=from_scratch,
            stopped=stopped,
            notice=notice,
            listener=listener,
        )
    )
