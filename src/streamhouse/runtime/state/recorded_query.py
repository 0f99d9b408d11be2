"""A query's definition as JSON, without secrets, for the recomputation of its past batches."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from typing import Any

from streamhouse.connectors.registry import declared
from streamhouse.connectors.specs import SourceSpec
from streamhouse.errors import TableError
from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.runtime.query_spec import QuerySpec
from streamhouse.sql.plan import Column, StreamQuery
from streamhouse.sql.udf.function import of_record

_KEPT_OPTIONS = (
    "connector", "scan.", "rows-per-second", "number-of-rows", "fields.", "source.", "path",
    "format", "json.", "csv.", "partition.", "seed", "locale", "late-", "duplicate-",
)  # fmt: skip
"""The beginnings of options that determine which rows a source reads; none of them is a secret."""


def definition_json(spec: QuerySpec) -> str:
    """The query, its source and its lookups as JSON; tables only by name, without the warehouse."""
    query = asdict(spec.query)
    scan = query["scan"]
    for table in (scan["table"], *(lookup["table"] for lookup in query["lookups"])):
        table["options"] = {}
        # The connector's name determines the capabilities.
        del table["capabilities"]
    scan["options"] = {}
    query["rows"]["functions"] = [function.record() for function in spec.query.rows.functions]
    read = spec.source
    source = {
        "connector": read.connector,
        "options": {
            key: value for key, value in read.options.items() if key.startswith(_KEPT_OPTIONS)
        },
        "columns": [asdict(column) for column in read.columns],
        "table": None if read.address is None else read.address.identifier,
    }
    lookups = [_other_warehouse(address, spec.target) for address in spec.lookups]
    record = {
        "query": query,
        "source": source,
        "lookups": [address.identifier for address in spec.lookups],
        "versions": {
            "source": None if read.address is None else read.address.schema_id,
            "lookups": [address.schema_id for address in spec.lookups],
            "target": spec.target.schema_id,
        },
        "warehouses": {"source": _other_warehouse(read.address, spec.target), "lookups": lookups},
    }
    return json.dumps(record)


def _other_warehouse(address: TableAddress | None, target: TableAddress) -> str | None:
    """The path of a table's warehouse where that is not the target's."""
    if address is None:
        return None
    path = address.warehouse["warehouse"]
    return None if path == target.warehouse.get("warehouse") else path


def spec_of(definition: str, target: TableAddress, query_id: str) -> QuerySpec:
    """The query of a definition.

    Its tables are in the warehouse of `target` unless the definition has another path; the other
    options of a catalog, such as credentials, are those of `target`. Raises `TableError` if an
    earlier version has written the definition.
    """
    record = json.loads(definition)
    if record["query"].keys() != {field.name for field in fields(StreamQuery)}:
        raise TableError(
            f"table {target.identifier}: an earlier version of Streamhouse recorded its query in a "
            "form that this one does not read; run the script once with --from-scratch"
        )
    versions, warehouses = record["versions"], record["warehouses"]

    def catalog(path: str | None) -> Mapping[str, str]:
        return target.warehouse if path is None else {**target.warehouse, "warehouse": path}

    source = record["source"]
    address = None
    if source["table"] is not None:
        address = TableAddress(catalog(warehouses["source"]), source["table"], versions["source"])
    return QuerySpec(
        query=_query(record["query"]),
        source=SourceSpec(
            source["connector"],
            source["options"],
            tuple(Column(**column) for column in source["columns"]),
            address,
            partitioned_by=tuple(record["query"]["scan"]["table"]["partitioned_by"]),
        ),
        lookups=tuple(
            TableAddress(catalog(path), name, version)
            for name, version, path in zip(
                record["lookups"], versions["lookups"], warehouses["lookups"], strict=True
            )
        ),
        target=replace(target, schema_id=versions["target"]),
        query_id=query_id,
        parallelism=1,
    )


def _query(record: dict[str, Any]) -> StreamQuery:
    # Slow to import, and most runs read no definition.
    from pydantic import TypeAdapter

    functions = tuple(map(of_record, record["rows"].pop("functions")))
    query = TypeAdapter(StreamQuery).validate_python(record)
    return replace(
        query,
        scan=replace(query.scan, table=declared(query.source)),
        lookups=tuple(replace(each, table=declared(each.table)) for each in query.lookups),
        rows=replace(query.rows, functions=functions),
    )
