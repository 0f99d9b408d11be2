"""Options of a catalog: those of Paimon's file system, JDBC and REST catalogs, in all releases.

They are the same in CREATE CATALOG, `--option` and Spark.
"""

from collections.abc import Mapping, Sequence

from streamhouse.errors import OptionError, UnsupportedSqlError
from streamhouse.options import boolean, by_key, check_known, choice, required, table_of
from streamhouse.sql.options.store_options import check_store_option, is_store_option

TABLE_DEFAULT = "table-default."
"""`table-default.<option>`: the default of a table option for tables created in the catalog."""
DEFAULT_DATABASE = "default-database"
_EFFECTIVE = ("type", "warehouse", "metastore", DEFAULT_DATABASE, "table.type")
REST_NAME = "rest.warehouse"
"""The name by which a REST server knows the warehouse, if that is not its location."""
_TABLE = table_of(__package__, "catalog_options.toml")
_BY_METASTORE: Mapping[str, Sequence[str]] = _TABLE["metastores"]
"""The options of a kind of catalog; `uri` is required."""
WAREHOUSE_KEYS = (
    "warehouse",
    "metastore",
    *(key for keys in _BY_METASTORE.values() for key in keys),
)
"""All options that open a warehouse, except those of its file system."""
_HIVE = (
    "{where}: 'metastore' is 'hive', which is not supported; its tables are folders: use them with "
    "'metastore' = 'filesystem' and the location of Hive's warehouse, as long as no other program "
    "writes them, or have them served by a REST catalog"
)

WITHOUT_EFFECT = by_key(_TABLE["without_effect"])
"""Options without effect here, and why."""


def check_catalog(options: Mapping[str, str], where: str) -> list[str]:
    """Check the options of CREATE CATALOG; `OptionError` for unknown keys and wrong values.

    Returns a notice for each option that has no effect here.
    """
    own = [
        key
        for key in options
        if not (check_store_option(key, where) or key.startswith(TABLE_DEFAULT))
    ]
    metastore = options.get("metastore", "filesystem")
    if metastore == "hive":
        raise UnsupportedSqlError(_HIVE.format(where=where))
    choice("metastore", metastore, _BY_METASTORE)
    effective = (*_EFFECTIVE, *_BY_METASTORE[metastore])
    for key in own:
        kinds = [kind for kind, keys in _BY_METASTORE.items() if key in keys]
        if kinds and key not in (*effective, *WITHOUT_EFFECT):
            raise OptionError(
                f"{where}: option '{key}' is for 'metastore' = '{kinds[0]}', and this is "
                f"'{metastore}'"
            )
    check_known(own, (*effective, *WITHOUT_EFFECT), where)
    if metastore != "filesystem":
        required(options, "uri", where)
    choice("table.type", options.get("table.type", "managed"), ["managed"])
    for key in ("case-sensitive", "allow-upper-case"):
        if key in options:
            boolean(key, options[key])
    ineffective = (key for key in own if key in WITHOUT_EFFECT and key not in effective)
    return [f"option '{key}' has no effect here: {WITHOUT_EFFECT[key]}" for key in ineffective]


def is_warehouse_option(key: str) -> bool:
    """Whether an option is one of those that open the warehouse: of its catalog or file system."""
    return key in WAREHOUSE_KEYS or is_store_option(key)


def of_warehouse(options: Mapping[str, str]) -> dict[str, str]:
    """The options that open the warehouse: its location, catalog and file system."""
    keys = ("warehouse", "metastore", *_BY_METASTORE[options.get("metastore", "filesystem")])
    return {k: v for k, v in options.items() if k in keys or is_store_option(k)}


def file_system_options(options: Mapping[str, str]) -> dict[str, str]:
    """The options with which a core opens the tables of a JDBC catalog.

    Such a catalog has the names of its tables in a database, and their files where a file system
    catalog has them. The Rust core knows no JDBC, and the Java core would need a driver.
    """
    if options.get("metastore") != "jdbc":
        return dict(options)
    jdbc = ("metastore", *_BY_METASTORE["jdbc"])
    return {key: value for key, value in options.items() if key not in jdbc}


def table_defaults(options: Mapping[str, str]) -> dict[str, str]:
    """The table defaults that CREATE CATALOG sets, without their prefix."""
    return {
        key.removeprefix(TABLE_DEFAULT): value
        for key, value in options.items()
        if key.startswith(TABLE_DEFAULT)
    }


def default_database(options: Mapping[str, str], otherwise: str) -> str:
    """The database for names without one; `OptionError` if the option is empty."""
    name = options.get(DEFAULT_DATABASE, otherwise).strip()
    if not name:
        raise OptionError(f"option '{DEFAULT_DATABASE}' is empty; name a database")
    return name
