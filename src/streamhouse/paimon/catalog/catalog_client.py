"""Requests to a Paimon catalog: the Rust core lists and opens, pypaimon creates and drops."""

import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

import pymysql

from streamhouse.errors import ConnectError, OptionError, StoreError, StreamhouseError
from streamhouse.paimon.catalog.table_declaration import TableDeclaration
from streamhouse.paimon.schema import types
from streamhouse.paimon.storage import rust_core
from streamhouse.paimon.storage.object_store.s3_client import core_options
from streamhouse.paimon.storage.object_store.store_retries import is_temporary, retried

Answer = TypeVar("Answer")
_KEY_TOO_LONG = 1071


class CatalogClient:
    """The catalog of `options`; requests are repeated while its object store fails."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = options

    @property
    def is_jdbc(self) -> bool:
        """Whether a database has the names of tables, which only pypaimon can read."""
        return self.metastore == "jdbc"

    @property
    def metastore(self) -> str:
        """The kind of the catalog."""
        return self._options.get("metastore", "filesystem")

    def databases(self) -> list[str]:
        """The names of all databases."""
        return self._listed(lambda names: names.list_databases())

    def tables(self, database: str) -> list[str]:
        """The names of a database's tables."""
        return self._listed(lambda names: names.list_tables(database))

    def open_table(self, database: str, name: str) -> Any:
        """The Rust core's table; raises one of `rust_core.CATALOG_ERRORS` if it cannot."""
        return self._with_retries(
            lambda: rust_core.catalog(self._options).get_table((database, name))
        )

    def create_table(self, full: str, declaration: TableDeclaration) -> bool:
        """Create a table; False if it exists."""
        from pypaimon.catalog.catalog_exception import TableAlreadyExistException

        try:
            with self.pypaimon() as catalog:
                catalog.create_table(full, new_schema(declaration), False)
        except TableAlreadyExistException:
            return False
        except ValueError as error:
            raise OptionError(f"table {full}: {error}") from error
        except RuntimeError as error:
            if "Schema in filesystem exists" in str(error):
                return False
            raise StreamhouseError(f"table {full} cannot be created: {error}") from error
        return True

    @contextmanager
    def pypaimon(self) -> Iterator[Any]:
        """A catalog of pypaimon; `ConnectError` if its database does not answer."""
        from pypaimon import CatalogFactory

        try:
            catalog = CatalogFactory.create(core_options(self._options))
        except (pymysql.Error, sqlite3.Error) as error:
            if error.args[:1] == (_KEY_TOO_LONG,):
                raise ConnectError(
                    "the catalog's tables need shorter keys than the database's character set "
                    "allows; create the catalog's database with CHARACTER SET utf8mb3"
                ) from None
            raise ConnectError(f"the catalog's database does not answer: {error}") from None
        except ValueError as error:
            raise OptionError(f"the catalog cannot be opened: {error}") from None
        try:
            yield catalog
        finally:
            if self.is_jdbc:
                catalog.close()

    def _listed(self, names_of: Callable[[Any], list[str]]) -> list[str]:
        """Names by the Rust core, or by pypaimon for JDBC."""

        def listed() -> list[str]:
            if not self.is_jdbc:
                return names_of(rust_core.catalog(self._options))
            with self.pypaimon() as catalog:
                return names_of(catalog)

        return self._with_retries(listed)

    def _with_retries(self, request: Callable[[], Answer]) -> Answer:
        """The response of the catalog; the request is repeated while its object store fails."""

        def response() -> Answer:
            try:
                return request()
            except rust_core.CATALOG_ERRORS as error:
                if not is_temporary(error):
                    raise
                reason = " ".join(str(error).split())
                text = f"the warehouse {self._options['warehouse']} cannot be read: {reason}"
                raise StoreError(text) from error

        return retried(response)


def new_schema(declaration: TableDeclaration) -> Any:
    """pypaimon's schema of a declared table; `ValueError` for what it does not accept."""
    from pypaimon import Schema
    from pypaimon.schema import data_types

    counter = data_types.AtomicInteger(-1)
    fields = []
    for column in declaration.columns:
        number = counter.increment_and_get()
        nullable = column.nullable and column.name not in declaration.primary_key
        parsed = data_types.DataTypeParser.parse_data_type(types.parse(column.type, nullable))
        data_type = data_types.reassign_field_id(parsed, counter)
        fields.append(data_types.DataField(number, column.name, data_type, column.comment))
    return Schema(
        fields,
        list(declaration.partitioned_by),
        list(declaration.primary_key),
        dict(declaration.options),
        declaration.comment,
    )
