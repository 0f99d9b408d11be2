"""A server of Paimon's REST catalog protocol over a local folder, as one process's threads.

It has what the three cores need: databases, tables, and commits, of which each snapshot number is
given to one only. The protocol's other parts answer 501.
"""

from __future__ import annotations

import http.server
import json
import os
import re
import threading
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from pypaimon import CatalogFactory
from pypaimon.api.api_request import CreateTableRequest
from pypaimon.catalog.catalog_exception import (
    DatabaseAlreadyExistException,
    DatabaseNotExistException,
    TableAlreadyExistException,
    TableNotExistException,
)
from pypaimon.common.json_util import JSON
from pypaimon.schema.data_types import DataTypeParser
from pypaimon.schema.schema_change import SchemaChange
from tests.local_http_server import LocalHttpServer

TOKEN = "open-sesame"
Answer = tuple[int, Any]


class RestServer(LocalHttpServer):
    """Serves the tables of a folder; `commits` counts the snapshots that it has accepted."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.catalog: Any = CatalogFactory.create({"warehouse": str(folder)})
        self.commits = 0
        self.lock = threading.Lock()
        self.requests: list[str] = []
        owner = self

        class Handler(_Handler):
            server_state = owner

        super().__init__(Handler)

    @property
    def options(self) -> dict[str, str]:
        return {
            "metastore": "rest",
            "uri": self.url,
            "warehouse": str(self.folder),
            "token.provider": "bear",
            "token": TOKEN,
        }

    def config(self, body: Any) -> Answer:
        return 200, {"defaults": {"prefix": "main"}, "overrides": {}}

    def databases(self, body: Any) -> Answer:
        return 200, {"databases": self.catalog.list_databases(), "nextPageToken": None}

    def create_database(self, body: Any) -> Answer:
        self.catalog.create_database(body["name"], False)
        return 200, {}

    def database(self, body: Any, name: str) -> Answer:
        if name not in self.catalog.list_databases():
            raise DatabaseNotExistException(name)
        location = str(self.folder / f"{name}.db")
        return 200, {"id": name, "name": name, "location": location, "options": {}, **_AUDIT}

    def drop_database(self, body: Any, name: str) -> Answer:
        self.catalog.drop_database(name, False, False)
        return 200, {}

    def tables(self, body: Any, database: str) -> Answer:
        self.database(None, database)
        return 200, {"tables": self.catalog.list_tables(database), "nextPageToken": None}

    def create_table(self, body: Any, database: str) -> Answer:
        request = JSON.from_json(json.dumps(body), CreateTableRequest)
        self.catalog.create_table(request.identifier, request.schema, False)
        return 200, {}

    def table(self, body: Any, database: str, name: str) -> Answer:
        root, schema_id, schema = self._schema(database, name)
        return 200, {
            "id": str(uuid.uuid5(uuid.NAMESPACE_URL, str(root))),
            "name": name,
            "path": str(root),
            "isExternal": False,
            "schemaId": schema_id,
            "schema": {
                "fields": schema["fields"],
                "partitionKeys": schema["partitionKeys"],
                "primaryKeys": schema["primaryKeys"],
                "options": schema["options"],
                "comment": schema.get("comment"),
            },
            **_AUDIT,
        }

    def _schema(self, database: str, name: str) -> tuple[Path, int, Any]:
        root = self.folder / f"{database}.db" / name
        ids = [int(path.name.removeprefix("schema-")) for path in root.glob("schema/schema-*")]
        if not ids:
            raise TableNotExistException(f"{database}.{name}")
        return root, max(ids), json.loads((root / "schema" / f"schema-{max(ids)}").read_text())

    def alter_table(self, body: Any, database: str, name: str) -> Answer:
        changes = []
        for change in body["changes"]:
            if change["action"] != "addColumn":
                return 501, _error(501, None, None, f"{change['action']} is not implemented")
            data_type = DataTypeParser.parse_data_type(change["dataType"])
            changes.append(SchemaChange.add_column(change["fieldNames"], data_type))
        self.catalog.alter_table(f"{database}.{name}", changes, False)
        return 200, {}

    def drop_table(self, body: Any, database: str, name: str) -> Answer:
        self.catalog.drop_table(f"{database}.{name}", False)
        return 200, {}

    def rename(self, body: Any) -> Answer:
        source, target = (
            f"{body[key]['database']}.{body[key]['object']}" for key in ("source", "destination")
        )
        self.catalog.rename_table(source, target)
        return 200, {}

    def commit(self, body: Any, database: str, name: str) -> Answer:
        """Accept a snapshot, if it is the first with its number."""
        root, _, _ = self._schema(database, name)
        folder, snapshot = root / "snapshot", body["snapshot"]
        folder.mkdir(exist_ok=True)
        with self.lock:
            path = folder / f"snapshot-{snapshot['id']}"
            if path.exists():
                return 200, {"success": False}
            part = folder / f".{uuid.uuid4().hex}"
            part.write_text(json.dumps(snapshot))
            os.replace(part, path)
            (folder / "LATEST").write_text(str(snapshot["id"]))
            self.commits += 1
        return 200, {"success": True}

    def snapshot(self, body: Any, database: str, name: str) -> Answer:
        root, _, _ = self._schema(database, name)
        ids = [
            int(path.name.removeprefix("snapshot-")) for path in root.glob("snapshot/snapshot-*")
        ]
        if not ids:
            return 404, _error(404, "SNAPSHOT", name, "no snapshot")
        snapshot = json.loads((root / "snapshot" / f"snapshot-{max(ids)}").read_text())
        counts = {"recordCount": snapshot.get("totalRecordCount") or 0, "fileCount": 0}
        sizes = {"fileSizeInBytes": 0, "lastFileCreationTime": 0}
        return 200, {"snapshot": {"snapshot": snapshot, **counts, **sizes}}


_AUDIT = {"owner": "o", "createdAt": 0, "createdBy": "o", "updatedAt": 0, "updatedBy": "o"}
_DB, _TABLE = "/databases/([^/]+)", "/databases/([^/]+)/tables/([^/]+)"
_ROUTES: list[tuple[str, str, Callable[..., Answer]]] = [
    ("GET", "/v1/config", RestServer.config),
    ("GET", "/v1/main/databases", RestServer.databases),
    ("POST", "/v1/main/databases", RestServer.create_database),
    ("GET", f"/v1/main{_DB}", RestServer.database),
    ("DELETE", f"/v1/main{_DB}", RestServer.drop_database),
    ("GET", f"/v1/main{_DB}/tables", RestServer.tables),
    ("POST", f"/v1/main{_DB}/tables", RestServer.create_table),
    ("POST", "/v1/main/tables/rename", RestServer.rename),
    ("GET", f"/v1/main{_TABLE}", RestServer.table),
    ("POST", f"/v1/main{_TABLE}", RestServer.alter_table),
    ("DELETE", f"/v1/main{_TABLE}", RestServer.drop_table),
    ("POST", f"/v1/main{_TABLE}/commit", RestServer.commit),
    ("GET", f"/v1/main{_TABLE}/snapshot", RestServer.snapshot),
]


def _error(code: int, kind: str | None, name: str | None, message: str) -> dict[str, Any]:
    return {"resourceType": kind, "resourceName": name, "message": message, "code": code}


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_state: RestServer

    def _do(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        path = urlsplit(self.path).path
        self.server_state.requests.append(f"{self.command} {path}")
        status, answer = self._answer(path, json.loads(body) if body else None)
        text = json.dumps(answer).encode()
        self.send_response_only(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_GET = do_POST = do_DELETE = _do

    def _answer(self, path: str, body: Any) -> Answer:
        if self.headers.get("authorization") != f"Bearer {TOKEN}":
            return 401, _error(401, None, None, "no valid token")
        for method, pattern, work in _ROUTES:
            match = re.fullmatch(pattern, path)
            if method == self.command and match:
                try:
                    return work(self.server_state, body, *map(unquote, match.groups()))
                except (DatabaseNotExistException, TableNotExistException) as error:
                    kind = "TABLE" if isinstance(error, TableNotExistException) else "DATABASE"
                    return 404, _error(404, kind, match[match.lastindex or 0], str(error))
                except (DatabaseAlreadyExistException, TableAlreadyExistException) as error:
                    kind = "TABLE" if isinstance(error, TableAlreadyExistException) else "DATABASE"
                    return 409, _error(409, kind, None, str(error))
        return 501, _error(501, None, None, f"{self.command} {path} is not implemented")

    def log_message(self, format: str, *args: Any) -> None:
        pass
