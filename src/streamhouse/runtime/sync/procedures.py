"""`CALL sys.sync_mysql_table` and `sys.sync_mysql_database`.

In a script they add a continuous query; `streamhouse call` and Python run them until caught up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from streamhouse.errors import OptionError
from streamhouse.paimon.schema.table_name import split_identifier
from streamhouse.procedures.arguments import names, pairs
from streamhouse.procedures.context import Context
from streamhouse.procedures.registry import Options, find, procedure, rows
from streamhouse.runtime.sync.options import (
    LISTS,
    MAPS,
    SyncOptions,
    sync_database_options,
    sync_table_options,
)
from streamhouse.runtime.sync.run import SyncRun, run_sync
from streamhouse.sql.syntax import Argument, ArgumentValue

TABLE, DATABASE = "sync_mysql_table", "sync_mysql_database"
_STATE = {
    "table": str, "target": str, "complete": bool, "snapshot_rows": int, "changes": int,
}  # fmt: skip


@procedure()
def sync_mysql_table(
    context: Context,
    table: str,
    mysql_conf: Options,
    partition_keys: str | None = None,
    primary_keys: str | None = None,
    type_mapping: str | None = None,
    computed_column: str | None = None,
    metadata_column: str | None = None,
    metadata_column_prefix: str | None = None,
    sync_primary_keys_from_source_schema: bool = True,
    table_conf: Options | None = None,
    skip_unsupported: bool = False,
    schema_change_behavior: str | None = None,
    include_schema_changes: str | None = None,
    exclude_schema_changes: str | None = None,
) -> pa.Table:
    """Follow MySQL tables into one Paimon table; in a script continuously, else until caught up.

    The arguments are the flags of `streamhouse sync mysql-table`; several computed columns are
    separated by semicolons. Returns a row for each table in MySQL.
    """
    given = {key: value for key, value in locals().items() if key != "context"}
    return _run(_options(TABLE, context.warehouse.options, given))


@procedure()
def sync_mysql_database(
    context: Context,
    database: str,
    mysql_conf: Options,
    including_tables: str | None = None,
    excluding_tables: str | None = None,
    table_prefix: str | None = None,
    table_suffix: str | None = None,
    table_prefix_db: Options | None = None,
    table_suffix_db: Options | None = None,
    table_mapping: Options | None = None,
    including_dbs: str | None = None,
    excluding_dbs: str | None = None,
    multiple_table_partition_keys: Options | None = None,
    merge_shards: bool = True,
    ignore_incompatible: bool = False,
    skip_unsupported: bool = False,
    schema_change_behavior: str | None = None,
    include_schema_changes: str | None = None,
    exclude_schema_changes: str | None = None,
    mode: str | None = None,
    partition_keys: str | None = None,
    primary_keys: str | None = None,
    type_mapping: str | None = None,
    computed_column: str | None = None,
    metadata_column: str | None = None,
    metadata_column_prefix: str | None = None,
    sync_primary_keys_from_source_schema: bool = True,
    table_conf: Options | None = None,
) -> pa.Table:
    """Follow MySQL databases into Paimon; in a script continuously, else until caught up.

    The arguments are the flags of `streamhouse sync mysql-database`; see `sync_mysql_table`.
    """
    given = {key: value for key, value in locals().items() if key != "context"}
    return _run(_options(DATABASE, context.warehouse.options, given))


def is_sync(name: str) -> bool:
    """Whether a procedure is a sync, which a script runs as a continuous query."""
    return name.lower() in (TABLE, DATABASE)


def options_of_call(
    name: str, arguments: Sequence[Argument], warehouse: Mapping[str, str], current: str
) -> SyncOptions:
    """The options of a CALL in a script; an unqualified table is in the `current` database."""
    values = find(name).bind(arguments)
    table = values.get("table")
    if isinstance(table, str) and "." not in table:
        values["table"] = f"{current}.{table}"
    return _options(name.lower(), warehouse, values)


def _options(
    name: str, warehouse: Mapping[str, str], given: Mapping[str, ArgumentValue]
) -> SyncOptions:
    arguments: dict[str, Any] = {
        key: _argument(name, key, value) for key, value in given.items() if value is not None
    }
    conf = arguments.pop("mysql_conf")
    if name == TABLE:
        database, table = split_identifier(arguments.pop("table"))
        return sync_table_options(warehouse, database, table, conf, **arguments)
    return sync_database_options(warehouse, arguments.pop("database"), conf, **arguments)


def _argument(name: str, key: str, value: ArgumentValue) -> object:
    """The value of an argument as `sync_database_options` takes it."""
    if key == "mysql_conf" or key in MAPS:
        return _pairs(name, key, value)
    if key == "computed_column":
        return [part for part in str(value).split(";") if part.strip()]
    return names(str(value)) if key in LISTS else value


def _pairs(name: str, argument: str, value: ArgumentValue) -> dict[str, str]:
    if isinstance(value, Mapping):
        return {str(key): str(option) for key, option in value.items()}
    try:
        if isinstance(value, str):
            return pairs(value, argument) if value.strip() else {}
    except OptionError:
        # It would quote a part of the text, which may be one of a password.
        pass
    raise OptionError(
        f"sys.{name}: argument '{argument}' takes 'key=value,key=value', or MAP['key', 'value', …] "
        "if a value has commas"
    )


def _run(options: SyncOptions) -> pa.Table:
    states = run_sync(SyncRun(options, until_caught_up=True))
    return rows(_STATE, [[state[column] for column in _STATE] for state in states])
