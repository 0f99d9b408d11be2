"""The views of a warehouse: one file each, in the folder of their database.

Paimon's filesystem catalog has no views. A view is the file `<database>.db/.views/<name>.json`, in
the format of Paimon's REST catalog (`fields`, `query`, `dialects`, `comment`, `options`). Other
engines ignore it.
"""

import json

from streamhouse.close_matches import nearest
from streamhouse.errors import StreamhouseError, TableError
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.storage.files import Files, files_of
from streamhouse.sql.plan import Column, ViewInfo

_DIALECT = "flink"


class Views:
    """The views of one warehouse."""

    def __init__(self, warehouse: Warehouse) -> None:
        self._warehouse = warehouse

    @property
    def _files(self) -> Files:
        return files_of(self._warehouse.path, self._warehouse.options)

    def names(self, database: str) -> list[str]:
        """The names of a database's views, sorted."""
        entries = self._files.names(self._folder(database))
        suffix = ".json"
        return sorted(
            name.removesuffix(suffix)
            for name, is_folder in entries
            if not is_folder and name.endswith(suffix) and not name.startswith(".")
        )

    def find(self, database: str, name: str) -> ViewInfo | None:
        """The view `database.name`; None if there is none."""
        text = self._files.read_text(self._path(database, name))
        if text is None:
            return None
        try:
            record = json.loads(text)
            return ViewInfo(
                (database, name),
                tuple(Column(field["name"], field["type"]) for field in record["fields"]),
                record["dialects"].get(_DIALECT, record["query"]),
                record.get("comment"),
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise StreamhouseError(
                f"view {database}.{name}: {self._path(database, name)} is not a view definition "
                f"({error}); DROP VIEW and CREATE it again"
            ) from error

    def create(self, view: ViewInfo) -> None:
        """Create or replace a view; `TableError` if there is no such database."""
        database, name = view.name[-2:]
        self.check_database(database)
        fields = [
            {"id": number, "name": column.name, "type": column.type}
            for number, column in enumerate(view.columns)
        ]
        record = {
            "fields": fields,
            "query": view.query,
            "dialects": {_DIALECT: view.query},
            "comment": view.comment,
            "options": {},
        }
        text = json.dumps(record, indent=2, ensure_ascii=False)
        self._files.write_text(self._path(database, name), text + "\n")

    def check_database(self, database: str) -> None:
        """Raise `TableError` if there is no such database."""
        databases = self._warehouse.databases()
        if database not in databases:
            raise TableError(f"there is no database '{database}'; {nearest(database, databases)}")

    def drop(self, database: str, name: str) -> None:
        """Delete a view, if it exists."""
        self._files.delete(self._path(database, name))

    def _folder(self, database: str) -> str:
        return f"{self._warehouse.path.rstrip('/')}/{database}.db/.views"

    def _path(self, database: str, name: str) -> str:
        return f"{self._folder(database)}/{name}.json"
