"""`CALL sys.repair`, and syncs: procedures that need the runtime, which `procedures` lies below.

In a script `sys.sync_mysql_table` and `sys.sync_mysql_database` add a continuous query;
`streamhouse call` and Python run them until caught up.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter, Signature
from typing import Any, TypeAlias

import pyarrow as pa

from streamhouse.errors import OptionError
from streamhouse.paimon.schema.table_name import split_identifier
from streamhouse.procedures.arguments import names, pairs
from streamhouse.procedures.context import Context
from streamhouse.procedures.registry import Options, find, procedure, rows
from streamhouse.runtime.sync.options import (
    BOOLEANS,
    DATABASE_ARGUMENTS,
    LISTS,
    MAPS,
    TABLE_ARGUMENTS,
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
_ANYWHERE = Parameter.POSITIONAL_OR_KEYWORD
_Function: TypeAlias = Callable[..., pa.Table]


@procedure()
def repair(
    context: Context, table: str, where: str | None = None, dry_run: bool = False
) -> pa.Table:
    """Compute a view of sums again from its sources and commit what differs, in one snapshot.

    `where` is a condition over its primary key. Returns `table`, `inserted`, `updated`,
    `deleted`, and `snapshot_id`: null where nothing was written.
    """
    from streamhouse.runtime.audit.repair import repair as run

    done = run(context.warehouse.options, table, where, dry_run)
    columns = {"table": str, "inserted": int, "updated": int, "deleted": int, "snapshot_id": int}
    return rows(columns, [(table, done.inserted, done.updated, done.deleted, done.snapshot)])


def _taking(target: str, names: Sequence[str]) -> Callable[[Callable[[], None]], _Function]:
    """Make a procedure of a function without arguments, which has its name and its docstring.

    Its parameters are the `target`, the options of MySQL, and the arguments in `names`.
    """
    kinds = {**dict.fromkeys(BOOLEANS, bool), **dict.fromkeys(MAPS, Options)}
    own = {"context": Context, target: str, "mysql_conf": Options}
    optional = [
        Parameter(name, _ANYWHERE, default=None, annotation=kinds.get(name, str)) for name in names
    ]
    required = [Parameter(name, _ANYWHERE, annotation=kind) for name, kind in own.items()]
    signature = Signature([*required, *optional])

    def declared(described: Callable[[], None]) -> _Function:
        @functools.wraps(described)
        def run(*args: Any, **kwargs: Any) -> pa.Table:
            given = signature.bind(*args, **kwargs).arguments
            warehouse = given.pop("context").warehouse.options
            options = _options(described.__name__, warehouse, given)
            states = run_sync(SyncRun(options, until_caught_up=True))
            return rows(_STATE, [[state[column] for column in _STATE] for state in states])

        run.__signature__ = signature  # type: ignore[attr-defined]
        return run

    return declared


@procedure()
@_taking("table", TABLE_ARGUMENTS)
def sync_mysql_table() -> None:
    """Follow MySQL tables into one Paimon table; in a script continuously, else until caught up.

    The arguments are the flags of `streamhouse sync mysql-table`; several computed columns are
    separated by semicolons. Returns a row for each table in MySQL.
    """


@procedure()
@_taking("database", DATABASE_ARGUMENTS)
def sync_mysql_database() -> None:
    """Follow MySQL databases into Paimon; in a script continuously, else until caught up.

    The arguments are the flags of `streamhouse sync mysql-database`; see `sync_mysql_table`.
    """


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
