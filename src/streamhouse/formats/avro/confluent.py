"""The format `avro-confluent`: each record names its schema in Confluent's schema registry."""

import base64
import json
import struct
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import fastavro
import pyarrow as pa
from fastavro.schema import SchemaParseException

from streamhouse.errors import ConnectError, OptionError
from streamhouse.formats.avro.codec import AvroDecoder, AvroEncoder, Framing
from streamhouse.formats.base import Format
from streamhouse.options import DeclaredOptions, OptionValues

_TIMEOUT_S = 20.0
_HEADER = struct.Struct(">bI")
_TYPE = "application/vnd.schemaregistry.v1+json"


class Registry(Framing):
    """A schema registry; schemas never change, so each is requested once."""

    def __init__(self, values: OptionValues) -> None:
        self._url, self._subject = values["url"].rstrip("/"), values["subject"] or ""
        self._login = values["basic-auth.user-info"]
        self._schemas: dict[int, Any] = {}
        if not self._url:
            raise OptionError(
                f"option '{values.before}url' is missing; set it to the schema registry"
            )

    def writer_schema(self, record: bytes) -> tuple[Any, int]:
        if len(record) < _HEADER.size or record[0] != 0:
            raise ValueError("the record has no header of Confluent's registry")
        _, number = _HEADER.unpack_from(record)
        if number not in self._schemas:
            found = self._request(f"/schemas/ids/{number}")
            if found.get("schemaType", "AVRO") != "AVRO":
                raise ValueError(f"schema {number} of the registry is {found['schemaType']}")
            self._schemas[number] = self._parsed(found, {})
        return self._schemas[number], _HEADER.size

    def _parsed(self, found: Mapping[str, Any], named: dict[str, Any]) -> Any:
        """A schema of the registry, parsed after those it refers to, which `named` collects."""
        for reference in found.get("references") or ():
            if reference["name"] not in named:
                subject = urllib.parse.quote(reference["subject"], safe="")
                path = f"/subjects/{subject}/versions/{reference['version']}"
                self._parsed(self._request(path), named)
        try:
            return fastavro.parse_schema(_without_uuids(json.loads(found["schema"])), named)
        except (ValueError, TypeError, SchemaParseException) as error:
            raise ValueError(
                f"its schema in the registry is not valid: {type(error).__name__} {error}"
            ) from None

    def header(self, schema: dict[str, Any]) -> bytes:
        subject = urllib.parse.quote(self._subject, safe="")
        found = self._request(f"/subjects/{subject}/versions", {"schema": json.dumps(schema)})
        return _HEADER.pack(0, int(found["id"]))

    def _request(self, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self._url}{path}", data, {"Content-Type": _TYPE})
        if self._login:
            coded = base64.b64encode(self._login.encode()).decode()
            request.add_header("Authorization", f"Basic {coded}")
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as response:
                answered: bytes = response.read()
        except urllib.error.HTTPError as error:
            text = error.read().decode(errors="replace")[:200]
            error.close()
            found = _object(text)
            # For an unknown path, the code in the answer is 404, too.
            is_known = found is not None and found.get("error_code") != HTTPStatus.NOT_FOUND
            if body is None and error.code == 404 and is_known:
                raise ValueError(f"the schema registry does not have its schema: {text}") from None
            raise ConnectError(f"schema registry {self._url}{path}: {error.code} {text}") from None
        except (urllib.error.URLError, TimeoutError, OSError) as error:
            raise ConnectError(f"schema registry {self._url}: {error}; check the 'url'") from None
        answer = _object(answered)
        if answer is None or ("schema" if body is None else "id") not in answer:
            raise ConnectError(
                f"{self._url}{path} does not answer as a schema registry does: "
                f"{answered[:60].decode(errors='replace')!r}; check the 'url'"
            )
        return answer


def _object(text: str | bytes) -> dict[str, Any] | None:
    """The JSON object of an answer; None for that of a server that is no registry."""
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _without_uuids(schema: Any) -> Any:
    """The schema without the logical type `uuid`: fastavro would convert texts to UUIDs."""
    if isinstance(schema, list):
        return [_without_uuids(part) for part in schema]
    if isinstance(schema, dict):
        return {
            key: _without_uuids(part)
            for key, part in schema.items()
            if (key, part) != ("logicalType", "uuid")
        }
    return schema


def _encoder(schema: pa.Schema, values: OptionValues) -> AvroEncoder:
    registry = Registry(values)
    if "subject" not in values:
        raise OptionError(f"option '{values.before}subject' is missing, such as '<topic>-value'")
    return AvroEncoder(schema, registry)


FORMAT = Format(
    "avro-confluent",
    DeclaredOptions.of(__package__, "confluent.toml").options,
    lambda schema, values: AvroDecoder(schema, Registry(values)),
    _encoder,
)
