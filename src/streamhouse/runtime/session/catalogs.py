"""The catalogs of a script's session: their options, and the current catalog and database."""

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from streamhouse.close_matches import nearest
from streamhouse.errors import OptionError, TableError
from streamhouse.paimon.catalog.views import Views
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.storage.files import is_local, local_path
from streamhouse.secret_references import resolve_secrets
from streamhouse.sql.options.catalog_options import (
    check_catalog,
    default_database,
    of_warehouse,
    table_defaults,
)
from streamhouse.sql.options.store_options import canonical_options, named_options
from streamhouse.sql.plan import Name
from streamhouse.sql.syntax import CreateCatalog, CreateDatabase, Drop

DEFAULT_CATALOG = "default_catalog"
DEFAULT_DATABASE = "default"
TEMPORARY = "streamhouse_temporary"
"""The catalog of tables that are deleted when the script ends, such as the view of a SELECT."""
_FLINK_DEFAULT_DATABASE = "default_database"


@dataclass(frozen=True)
class _Defaults:
    """The default database and the default table options of a catalog."""

    database: str = DEFAULT_DATABASE
    table_options: Mapping[str, str] = field(default_factory=dict)


class Catalogs:
    """Creates, uses and drops catalogs and databases; completes names.

    With a `warehouse` (from the command line), the initial catalog is a Paimon catalog of this
    warehouse, and its options override those of every catalog that the script creates.
    """

    def __init__(self, warehouse: Mapping[str, str] | None, notice: Callable[[str], None]) -> None:
        self._warehouse_options = dict(warehouse) if warehouse is not None else None
        self._notice = notice
        self._options: dict[str, dict[str, str]] = {}
        self._defaults: defaultdict[str, _Defaults] = defaultdict(_Defaults)
        self._catalog = DEFAULT_CATALOG
        self._database = DEFAULT_DATABASE
        if self._warehouse_options is not None:
            self._options[DEFAULT_CATALOG] = canonical_options(self._warehouse_options)
            self._create_default_database(DEFAULT_CATALOG, DEFAULT_DATABASE)

        self.temporary_folder: Callable[[], str] | None = None
        """Returns the folder of the catalog `TEMPORARY`; it is called once."""

    def of_results(self, catalog: str) -> str:
        """The catalog for views over what a query writes into a catalog: `TEMPORARY` without it."""
        if catalog not in self._options and TEMPORARY not in self._options:
            assert self.temporary_folder is not None
            self._options[TEMPORARY] = {"warehouse": self.temporary_folder()}
            self._create_default_database(TEMPORARY, DEFAULT_DATABASE)
        return catalog if catalog in self._options else TEMPORARY

    def is_temporary(self, warehouse: Mapping[str, str]) -> bool:
        """Whether a warehouse is that of the catalog `TEMPORARY`."""
        return dict(warehouse) == self._options.get(TEMPORARY)

    def __contains__(self, catalog: str) -> bool:
        return catalog in self._options

    @property
    def current(self) -> tuple[str, str]:
        """The current catalog and its current database."""
        return self._catalog, self._database

    def names(self) -> list[str]:
        """The names of the catalogs of the script, sorted."""
        return sorted(self._options.keys() - {TEMPORARY})

    def options(self, catalog: str) -> dict[str, str]:
        """The options of a catalog; `TableError` with the nearest name if there is none."""
        if catalog not in self._options:
            if catalog == DEFAULT_CATALOG:
                problem = (
                    "there is no catalog yet" if not self._options else "no warehouse is given"
                )
                raise TableError(
                    f"{problem}: write CREATE CATALOG … WITH ('type' = 'paimon', "
                    "'warehouse' = '…') and USE CATALOG, or give --warehouse DIR"
                )
            hint = nearest(catalog, self._options)
            raise TableError(f"there is no catalog '{catalog}'; {hint}")
        return dict(self._options[catalog])

    def table_options(self, catalog: str) -> Mapping[str, str]:
        """The default options of the tables that are created in a catalog."""
        return self._defaults[catalog].table_options

    def warehouse(self, catalog: str) -> Warehouse:
        """The warehouse of a catalog."""
        return Warehouse(self.options(catalog))

    def views(self, catalog: str) -> Views:
        """The views that are stored in the warehouse of a catalog."""
        return Views(self.warehouse(catalog))

    def create(self, statement: CreateCatalog) -> None:
        """Run CREATE CATALOG; creates the catalog's default database, if it does not exist."""
        if statement.name in self._options:
            if statement.if_not_exists:
                return
            raise OptionError(f"catalog '{statement.name}' already exists")
        where = f"catalog '{statement.name}'"
        options, defaults = self._parsed(statement, where)
        self._options[statement.name] = canonical_options(options, where)
        self._defaults[statement.name] = defaults
        self._create_default_database(statement.name, defaults.database)

    def use(self, catalog: str) -> None:
        """Run USE CATALOG."""
        # Flink's default catalog always exists; without a warehouse it has temporary tables only.
        if catalog != DEFAULT_CATALOG:
            self.options(catalog)
        self._catalog, self._database = catalog, self._defaults[catalog].database

    def drop(self, statement: Drop) -> bool:
        """Run DROP CATALOG, which keeps the warehouse; False if there is none, with IF EXISTS."""
        catalog = statement.name[0]
        self._defaults.pop(catalog, None)
        found = self._options.pop(catalog, None) is not None
        if not (found or statement.if_exists):
            raise OptionError(f"there is no catalog '{catalog}'")
        return found

    def create_database(self, statement: CreateDatabase) -> bool:
        """Run CREATE DATABASE; False if it exists, with IF NOT EXISTS."""
        catalog, database = self.database(statement.name)
        return self.warehouse(catalog).create_database(database, statement.if_not_exists)

    def use_database(self, name: Name) -> None:
        """Run USE, of a database."""
        catalog, database = self.database(name)
        if (catalog, database) != (DEFAULT_CATALOG, DEFAULT_DATABASE):
            known = self.warehouse(catalog).databases()
            if database not in known:
                raise TableError(f"there is no database '{database}'; {nearest(database, known)}")
        self._catalog, self._database = catalog, database

    def database(self, name: Name) -> tuple[str, str]:
        """The catalog and the database of a database's name."""
        catalog = name[0] if len(name) == 2 else self._catalog
        return catalog, self._stored_name(catalog, name[-1])

    def full(self, name: Name) -> Name:
        """The name of a table or view, with catalog and database."""
        full = self.current[: 3 - len(name)] + tuple(name)
        return (full[0], self._stored_name(full[0], full[1]), full[2])

    def _parsed(self, statement: CreateCatalog, where: str) -> tuple[dict[str, str], _Defaults]:
        """The options of a catalog's warehouse, and the defaults of its tables."""
        options = dict(statement.options)
        catalog_type = options.pop("type", None)
        if catalog_type not in ("paimon", "generic_in_memory"):
            raise OptionError(f"{where}: 'type' is {catalog_type!r}; it must be 'paimon'")
        for text in check_catalog(options, where):
            self._notice(f"{where}: {text}")
        defaults = _Defaults(default_database(options, DEFAULT_DATABASE), table_defaults(options))
        options = named_options(resolve_secrets(of_warehouse(options), where), where)
        if self._warehouse_options is not None:
            options.update(self._warehouse_options)
        if "warehouse" not in options:
            raise OptionError(
                f"{where}: option 'warehouse' is missing; give it in WITH, or --warehouse DIR on "
                "the command line"
            )
        if is_local(options["warehouse"]):
            options["warehouse"] = local_path(options["warehouse"])
        return options, defaults

    def _stored_name(self, catalog: str, database: str) -> str:
        """The database's name, with Flink's `default_database` mapped to the default database.

        A stored database of that name is used as it is.
        """
        if catalog != DEFAULT_CATALOG or database != _FLINK_DEFAULT_DATABASE:
            return database
        stored = catalog in self._options and database in self.warehouse(catalog).databases()
        return database if stored else DEFAULT_DATABASE

    def _create_default_database(self, catalog: str, database: str) -> None:
        self.warehouse(catalog).create_database(database, if_not_exists=True)
