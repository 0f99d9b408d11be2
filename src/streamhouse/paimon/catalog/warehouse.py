"""A Paimon warehouse: creates, opens and drops databases and tables."""

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from streamhouse.close_matches import nearest
from streamhouse.errors import OptionError, StreamhouseError, TableError
from streamhouse.paimon.catalog.alter_table import alter_table
from streamhouse.paimon.catalog.catalog_client import CatalogClient
from streamhouse.paimon.catalog.table_declaration import TableDeclaration, checked_declaration
from streamhouse.paimon.read import time_travel
from streamhouse.paimon.read.system_tables import SYSTEM_TABLES, TRAVELLING, SystemTable
from streamhouse.paimon.read.table import Table, resolve
from streamhouse.paimon.schema.table_name import MAIN, TableName, name_fault, split_identifier
from streamhouse.paimon.storage import rust_core
from streamhouse.paimon.storage.files import is_local, local_path, remember
from streamhouse.paimon.storage.lock import creation_lock
from streamhouse.sql.options.store_options import canonical_options, is_object_store
from streamhouse.sql.plan import AsOf, Column
from streamhouse.sql.schema_changes import SchemaChange, SetDefault

_CHECK_S = 2.0
"""How long a followed table is used before its schema is compared again."""


@dataclass
class _Opened:
    """A table, its schema's stamp, and when that was last compared (monotonic seconds)."""

    stamp: object
    table: Table
    checked_at: float


_opened: dict[tuple[int, tuple[tuple[str, str], ...], str, bool], _Opened] = {}
"""The tables that each process has opened, by the catalog's options, their identifier, and whether
they are followed in an object store."""


def evict(prefix: str) -> None:
    """Forget the opened tables whose identifiers begin with `prefix`."""
    for key in [key for key in list(_opened) if key[2].startswith(prefix)]:
        del _opened[key]


class Warehouse:
    """Databases and tables under one Paimon catalog.

    `path_or_options` is a folder or URI, or catalog options with `warehouse` among them (and
    `s3.*`, `metastore`, … as Paimon names them). Objects are cheap: the process caches catalogs
    and opened tables.
    """

    def __init__(self, path_or_options: str | Mapping[str, str]) -> None:
        value = path_or_options
        options = {"warehouse": value} if isinstance(value, str) else dict(value)
        options = canonical_options(options)
        if not options.get("warehouse"):
            raise OptionError(
                "option 'warehouse' is missing: set it to the folder or URI of the Paimon warehouse"
            )
        if is_local(options["warehouse"]):
            options["warehouse"] = os.path.abspath(local_path(options["warehouse"]))
        self.options: Mapping[str, str] = options
        self.path: str = options["warehouse"]
        """The warehouse's folder or URI, a local one absolute."""
        remember(options["warehouse"], options)
        self._key = tuple(sorted(options.items()))
        self._catalog = CatalogClient(options)

    def __repr__(self) -> str:
        return f"Warehouse({self.path!r})"

    def databases(self) -> list[str]:
        """Names of all databases, sorted."""
        try:
            return sorted(self._catalog.databases())
        except rust_core.CATALOG_ERRORS as error:
            if is_local(self.path) and not os.path.isdir(self.path):
                return []
            reason = " ".join(str(error).split())
            raise StreamhouseError(f"the warehouse {self.path} cannot be read: {reason}") from error

    def tables(self, database: str) -> list[str]:
        """Names of a database's tables, sorted; `TableError` if there is no such database."""
        if database not in self.databases():
            raise self._missing_database(database)
        return sorted(self._catalog.tables(database))

    @contextmanager
    def creating(self) -> Iterator[None]:
        """Keep other processes from creating or dropping anything in the warehouse (creation lock).

        A local warehouse that is not writable is not locked: nothing can be created there.
        """
        if is_local(self.path) and not os.access(self.path, os.W_OK):
            yield
            return
        with creation_lock(self.path):
            yield

    def create_database(self, name: str, if_not_exists: bool = False) -> bool:
        """Create a database (and a local warehouse's folder); False if it exists.

        Safe if others do so concurrently.
        """
        if is_local(self.path):
            os.makedirs(self.path, exist_ok=True)
        if if_not_exists and name in self.databases():
            return False
        with self.creating():
            if name in self.databases():
                if if_not_exists:
                    return False
                raise TableError(
                    f"database '{name}' already exists; write IF NOT EXISTS to keep it"
                )
            _check_name(f"database '{name}'", name)
            with self._catalog.pypaimon() as catalog:
                catalog.create_database(name, True)
        return True

    def drop_database(self, name: str, if_exists: bool = False, cascade: bool = False) -> bool:
        """Drop a database; with `cascade` its tables too, else it must be empty.

        False if there is none, with `if_exists`.
        """
        with self.creating():
            if name not in self.databases():
                if if_exists:
                    return False
                raise self._missing_database(name)
            tables = self.tables(name)
            if tables and not cascade:
                raise TableError(
                    f"database '{name}' still has tables ({', '.join(tables[:5])}); drop them first"
                )
            self._drop_database(name, cascade)
        return True

    def _drop_database(self, name: str, cascade: bool) -> None:
        with self._catalog.pypaimon() as catalog:
            catalog.drop_database(name, True, cascade)
        evict(f"{name}.")

    def create_table(
        self,
        database: str,
        name: str,
        columns: Sequence[Column],
        primary_key: Sequence[str] = (),
        partitioned_by: Sequence[str] = (),
        options: Mapping[str, str] | None = None,
        comment: str | None = None,
        if_not_exists: bool = False,
        copied: bool = False,
    ) -> bool:
        """Create a table; of concurrent processes one creates it (True), and the others find it.

        Columns of the primary key become NOT NULL. Keys may be given as the options `primary-key`
        and `partition`, as in Paimon; `sql.options.renamed_options` translates options of earlier
        releases. A definition `copied` from a stored table is not checked. Raises `TableError` if
        the table exists (unless `if_not_exists`), `TableError` or `OptionError` for a definition
        that cannot be stored (`paimon.schema.validation`).
        """
        declaration = TableDeclaration(
            columns, primary_key, partitioned_by, options or {}, comment, copied=copied
        )
        with self.creating():
            created = not self.exists(database, name) and self._check_and_create(
                database, name, declaration
            )
        if not (created or if_not_exists):
            raise TableError(
                f"table '{database}.{name}' already exists; write IF NOT EXISTS to keep it"
            )
        return created

    def _check_and_create(self, database: str, name: str, declaration: TableDeclaration) -> bool:
        """Check a declaration and create its table; False if another machine did so first."""
        full = f"{database}.{name}"
        _check_name(f"table '{full}'", name)
        if database not in self.databases():
            raise self._missing_database(database)
        declared = checked_declaration(full, declaration)
        created = self._create(full, declared)
        evict(full)
        defaults = [SetDefault((column,), value) for column, value in declared.defaults.items()]
        if created and defaults:
            try:
                self.alter_table(full, *defaults)
            except BaseException:
                self._drop(full)
                raise
        return created

    def alter_table(self, identifier: str, *changes: SchemaChange) -> None:
        """Change a table's columns and options (`streamhouse.sql.schema_changes`), all or nothing.

        Column defaults are set after the other changes, as a version of the schema of their own: a
        default that is no value of its column's type leaves the other changes in place. Readers and
        writers may continue. Raises `TableError` for a column that is missing or already exists,
        `SchemaChangeError` for a change that would lose values, `OptionError` for an option that is
        unknown or fixed.
        """
        with self._catalog.pypaimon() as catalog:
            alter_table(self, catalog, identifier, changes)
        evict(identifier)

    def rename_table(self, identifier: str, new_name: str) -> None:
        """Rename a table, both names as `database.table`; nothing may write to it meanwhile."""
        database, name = split_identifier(identifier)
        new_database, new = split_identifier(new_name)
        with self.creating():
            self._found(database, name)
            if new_database not in self.databases():
                raise self._missing_database(new_database)
            _check_name(f"table '{new_name}'", new)
            if self.exists(new_database, new):
                raise TableError(f"table '{new_name}' already exists; choose another name")
            self._check_no_folder(new_database, new)
            self._rename(identifier, new_name)

    def _check_no_folder(self, database: str, name: str) -> None:
        """The files of a renamed table would be moved into the folder, and its own be read."""
        if self._catalog.metastore == "rest" or not is_local(self.path):
            return
        folder = os.path.join(local_path(self.path), f"{database}.db", name)
        if os.path.exists(folder):
            raise TableError(
                f"the folder {folder} exists, and is no table of the catalog; remove it, or choose "
                "another name"
            )

    def _rename(self, identifier: str, new_name: str) -> None:
        with self._catalog.pypaimon() as catalog:
            catalog.rename_table(identifier, new_name)
        evict(identifier)
        evict(new_name)

    def drop_table(self, database: str, name: str, if_exists: bool = False) -> bool:
        """Drop a table and its files; False if there is none, with `if_exists`."""
        with self.creating():
            if not self._found(database, name, if_exists):
                return False
            self._drop(f"{database}.{name}")
        return True

    def _drop(self, full: str) -> None:
        with self._catalog.pypaimon() as catalog:
            try:
                catalog.drop_table(full, True)
            except FileNotFoundError:
                # A reader or a compaction has removed its temporary file meanwhile.
                catalog.drop_table(full, True)
        evict(full)

    def exists(self, database: str, name: str) -> bool:
        """Whether the table exists; False if the database is missing."""
        if self._catalog.metastore == "filesystem" and is_local(self.path):
            # The core lists all tables of the database, and the schemas of each.
            schemas = os.path.join(self.path, f"{database}.db", name, "schema")
            try:
                return os.sep not in name and any(
                    schema.startswith("schema-") for schema in os.listdir(schemas)
                )
            except (FileNotFoundError, NotADirectoryError):
                return False
        return database in self.databases() and name in self._catalog.tables(database)

    def table(self, identifier: str, dynamic_options: Mapping[str, str] | None = None) -> Table:
        """The table `database.table` as it is now, with `dynamic_options` over its own.

        `database.table$branch_b` is a branch of it, read and written as a table of its own.
        Raises `TableError` naming the nearest if the table, branch or database is missing, and for
        system tables, which `readable` opens.
        """
        table = self._table(identifier)
        return table.copy(dynamic_options) if dynamic_options else table

    def followed(self, identifier: str) -> Table:
        """The same for those that read or write a table again and again, such as queries.

        In an object store, changes of its schema, and that it was created again or rolled back, are
        seen up to two seconds later (`storage.followed_snapshots`).
        """
        return self._table(identifier, is_object_store(self.path))

    def _table(self, identifier: str, followed: bool = False) -> Table:
        """The opened table, opened again if its schema has changed."""
        database, name = split_identifier(identifier)
        key = (os.getpid(), self._key, identifier, followed)
        opened, now = _opened.get(key), time.monotonic()
        if opened is not None and followed and now - opened.checked_at < _CHECK_S:
            return opened.table
        if opened is None or opened.stamp is None or opened.table.schema_stamp() != opened.stamp:
            table = self._open(database, name, followed)
            opened = _opened[key] = _Opened(table.schema_stamp(), table, now)
        opened.checked_at = now
        return opened.table

    def readable(
        self,
        identifier: str,
        as_of: AsOf | None = None,
        options: Mapping[str, str] | None = None,
        pin: bool = False,
    ) -> Table | SystemTable:
        """Open a table, a branch or a system table for reading, as of `as_of`.

        With `pin`, reads stay at the current snapshot, whatever is committed later; system tables
        that are not in `TRAVELLING` ignore it. Raises `TableError`, with the nearest name, for what
        does not exist, `DataLossError` for a snapshot that has expired.
        """
        database, name = split_identifier(identifier)
        parsed = TableName.parse(name)
        data = self.table(f"{database}.{parsed.data}", options)
        as_of = as_of or AsOf()
        if parsed.system is None:
            if as_of:
                return time_travel.table_as_of(data, as_of)
            return time_travel.pinned(data) if pin else data
        if parsed.system not in SYSTEM_TABLES:
            hint = nearest(parsed.system, SYSTEM_TABLES)
            raise TableError(f"there is no system table '${parsed.system}'; {hint}")
        if parsed.system not in TRAVELLING:
            if as_of:
                raise TableError(
                    f"table '{identifier}' does not support time travel; these system tables do: "
                    f"{', '.join('$' + known for known in TRAVELLING)}"
                )
            return SystemTable(data, parsed, AsOf())
        if parsed.system == "ro" and pin and not as_of:
            return SystemTable(time_travel.pinned(data), parsed, as_of)
        if as_of or pin:
            as_of = time_travel.resolve(data, as_of)
            data = time_travel.table_as_of(data, as_of)
        return SystemTable(data, parsed, as_of)

    def _open(self, database: str, name: str, followed: bool) -> Table:
        if self._catalog.is_jdbc:
            self._check_readable(database, TableName.parse(name))
        try:
            rust = self._catalog.open_table(database, name)
        except rust_core.CATALOG_ERRORS:
            self._check_readable(database, TableName.parse(name))
            # Another process may have created it between the first attempt and the check.
            rust = None
        try:
            if rust is None:
                rust = self._catalog.open_table(database, name)
            return resolve(rust, database, name, self.options, followed)
        except rust_core.CATALOG_ERRORS as error:
            raise StreamhouseError(f"table {database}.{name} cannot be opened: {error}") from error

    def _check_readable(self, database: str, name: TableName) -> None:
        """Raise `TableError` for a table or branch that is missing, and for a system table."""
        if not self.exists(database, name.table):
            raise self._missing_table(database, name.table)
        if name.system is not None:
            raise TableError(
                f"table '{database}.{name}' is a system table: it can be queried, but not "
                f"written or streamed; write {database}.{name.data} for the table itself"
            )
        full = f"{database}.{name.table}"
        if name.branch != MAIN and name.branch not in (branches := self.table(full).branches()):
            hint = nearest(name.branch, branches)
            raise TableError(f"table '{full}' has no branch '{name.branch}'; {hint}") from None

    def _create(self, full: str, declaration: TableDeclaration) -> bool:
        """Create a table; False if it exists."""
        return self._catalog.create_table(full, declaration)

    def _found(self, database: str, name: str, if_exists: bool = False) -> bool:
        """Whether a table exists; raises `TableError` if not, unless `if_exists`."""
        if self.exists(database, name):
            return True
        if if_exists:
            return False
        raise self._missing_table(database, name)

    def _missing_database(self, name: str) -> TableError:
        hint = nearest(name, self.databases())
        return TableError(f"there is no database '{name}' in {self.path}; {hint}")

    def _missing_table(self, database: str, name: str) -> TableError:
        if database not in self.databases():
            return self._missing_database(database)
        hint = nearest(name, self.tables(database))
        return TableError(f"there is no table '{name}' in database '{database}'; {hint}")


def _check_name(what: str, name: str) -> None:
    fault = name_fault(name)
    if fault is not None:
        raise TableError(f"{what}: {fault}; choose another name")
