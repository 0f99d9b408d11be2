"""What is recorded of a query, without secrets: its definition, and the tables it is bound to.

The lineage and the checkpoint have the definition as JSON, for the recomputation of past batches.
The checkpoint also has what identifies the tables that the query was planned with, and the columns
that it uses: a later run is planned with the names of its time, which may be those of other
columns, or of another table.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from itertools import product
from typing import Any, Self

from streamhouse.connectors.registry import declared
from streamhouse.connectors.specs import SinkSpec, SourceSpec
from streamhouse.errors import TableError
from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.paimon.schema.evolution import column_ids
from streamhouse.paimon.storage.table_identity import Identity
from streamhouse.runtime.query_spec import QuerySpec
from streamhouse.sql.plan import Column, StreamQuery, TableInfo

_KEPT_OPTIONS = (
    "connector", "scan.", "rows-per-second", "number-of-rows", "fields.", "source.", "path",
    "format", "json.", "csv.", "partition.", "seed", "locale", "late-", "duplicate-",
)  # fmt: skip
"""The beginnings of options that determine which rows a source reads; none of them is a secret."""


_PLACES = ("path", "topic", "database-name", "table-name")
"""Options that say where a table of another connector is; its server may move to another host."""
_WHOLE_NUMBERS = ("TINYINT", "SMALLINT", "INT", "BIGINT")


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
    from streamhouse.connectors.json_records import from_json

    query = from_json(StreamQuery, record)
    return replace(
        query,
        scan=replace(query.scan, table=declared(query.source)),
        lookups=tuple(replace(each, table=declared(each.table)) for each in query.lookups),
    )


@dataclass(frozen=True)
class BoundTable:
    """A table as a query uses it.

    `identity` differs for a table that was dropped and created again. `columns` are the used ones
    by name, each with its id (None: the table has no ids) and its type. `names`: the names that
    Paimon columns have now, by id.
    """

    name: str
    identity: str
    columns: Mapping[str, tuple[int | None, str]]
    names: Mapping[int, str]

    @classmethod
    def of_paimon(cls, address: TableAddress, used: Sequence[str]) -> Self:
        """A Paimon table, by the schema version of the plan."""
        table, planned = address.open(), address.planned()
        ids = column_ids(planned)
        types = {column.name: column.type for column in planned.columns}
        columns = {name: (ids[name], types[name]) for name in used if name in ids}
        names = {number: name for name, number in column_ids(table).items()}
        return cls(address.identifier, Identity(table).digest, columns, names)

    @classmethod
    def of_other(cls, table: TableInfo | SinkSpec, used: Sequence[str]) -> Self:
        """A table of another connector, by its declaration."""
        name = ".".join(table.name[-2:]) if isinstance(table, TableInfo) else table.name
        place = {key: table.options[key] for key in _PLACES if key in table.options}
        identity = f"{table.connector} {json.dumps(place) if place else name}"
        columns = {c.name: (None, c.type) for c in table.columns if c.name in used}
        return cls(name, identity, columns, {})

    def rebound(self, before: Self) -> Iterator[str]:
        """What names and types mean now, where they meant something else before, as texts.

        Types whose values are the same in every expression do not count.
        """
        for name in sorted(self.columns.keys() & before.columns.keys()):
            (number, kind), (number_before, kind_before) = self.columns[name], before.columns[name]
            where = f"column '{name}' of table {self.name}"
            if number is None or number_before is None:
                continue
            if number != number_before:
                now = self.names.get(number_before)
                former = "was dropped" if now is None else f"is now '{now}'"
                yield f"{where} is another one than before, which {former}"
            elif not _same_values(kind_before, kind):
                yield f"{where} was {kind_before} and is now {kind}"


@dataclass(frozen=True)
class BoundTables:
    """The source, the target and the lookup tables of a query."""

    source: BoundTable
    target: BoundTable
    lookups: tuple[BoundTable, ...]

    @classmethod
    def of(cls, spec: QuerySpec) -> Self:
        """The tables of a query as they are now, with the columns of its plan."""
        query, source = spec.query, spec.source
        output = [column.name for column in query.rows.columns]
        lookups = [
            BoundTable.of_other(lookup.table, lookup.columns)
            if lookup.on_server
            else BoundTable.of_paimon(address, lookup.columns)
            for lookup, address in zip(query.lookups, spec.lookups, strict=True)
        ]
        return cls(
            BoundTable.of_other(query.source, query.scan.columns)
            if source.address is None
            else BoundTable.of_paimon(source.address, query.scan.columns),
            BoundTable.of_paimon(spec.target, output)
            if spec.sink is None
            else BoundTable.of_other(spec.sink, output),
            tuple(lookups),
        )

    @classmethod
    def parse(cls, record: Mapping[str, Any]) -> Self:
        """The tables of a `record`."""

        def table(entry: Mapping[str, Any]) -> BoundTable:
            columns = {name: (column[0], column[1]) for name, column in entry["columns"].items()}
            return BoundTable(entry["name"], entry["identity"], columns, {})

        lookups = tuple(map(table, record["lookups"]))
        return cls(table(record["source"]), table(record["target"]), lookups)

    def record(self) -> dict[str, Any]:
        """The tables as JSON."""
        return asdict(self)

    def rebound(self, before: Self) -> list[str]:
        """`BoundTable.rebound` of all tables that are the same as before."""
        pairs = [(self.source, before.source), (self.target, before.target)]
        pairs += product(self.lookups, before.lookups)
        same = [(now, then) for now, then in pairs if now.identity == then.identity]
        return list(dict.fromkeys(text for now, then in same for text in now.rebound(then)))

    def recreated_lookups(self, before: Self) -> list[str]:
        """The lookup tables that were dropped and created again."""
        identities = {table.name: table.identity for table in before.lookups}
        return [
            table.name
            for table in self.lookups
            if identities.get(table.name, table.identity) != table.identity
        ]


def _same_values(before: str, now: str) -> bool:
    """Whether values of both types give the same in every expression: their texts, quotients, …"""
    kinds = [kind.removesuffix(" NOT NULL") for kind in (before, now)]
    if kinds[0] == kinds[1] or all(kind in _WHOLE_NUMBERS for kind in kinds):
        return True
    names = {re.split(r"[( ]", kind)[0] for kind in kinds}
    if names <= {"CHAR", "VARCHAR", "STRING"} or names <= {"BINARY", "VARBINARY", "BYTES"}:
        return True
    scales = [re.fullmatch(r"DECIMAL\(\d+, (\d+)\)", kind) for kind in kinds]
    return all(scales) and len({match[1] for match in scales if match}) == 1
