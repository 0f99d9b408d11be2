"""What dbt asks of a warehouse: its relations and their columns, and texts of values and types."""

import datetime
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from graphlib import TopologicalSorter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dbt.adapters.base import BaseRelation, Column, available
from dbt.adapters.base.relation import InformationSchema
from dbt.adapters.contracts.relation import Policy, RelationType
from dbt.adapters.sql import SQLAdapter
from dbt.adapters.streamhouse.connections import ConnectionManager
from dbt_common.exceptions import DbtRuntimeError

from streamhouse.runtime.session.session import Session
from streamhouse.sql.statements.derived_table import table_of_query
from streamhouse.sql.statements.script import parse_script
from streamhouse.sql.syntax import CreateTable

if TYPE_CHECKING:
    import agate

_KINDS = (
    ("MATERIALIZED VIEWS", RelationType.MaterializedView),
    ("VIEWS", RelationType.View),
    ("TABLES", RelationType.Table),
)
_CATALOG = (
    "table_database", "table_schema", "table_name", "table_type", "table_comment", "table_owner",
    "column_name", "column_index", "column_type", "column_comment",
)  # fmt: skip


@dataclass
class _Quoted(Policy):
    database: bool = False
    schema: bool = True
    identifier: bool = True


@dataclass
class _Included(Policy):
    database: bool = False
    schema: bool = True
    identifier: bool = True


@dataclass(frozen=True, eq=False, repr=False)
class Relation(BaseRelation):
    """A table or view, written as `database`.`table`: dbt's schema is a database of Streamhouse."""

    quote_policy: Policy = field(default_factory=_Quoted)
    include_policy: Policy = field(default_factory=_Included)
    quote_character: str = "`"


class StreamhouseAdapter(SQLAdapter):
    """Reads the catalog of the warehouse, and renders values as literals."""

    ConnectionManager = ConnectionManager
    Relation = Relation

    @classmethod
    def date_function(cls) -> str:
        return "CURRENT_TIMESTAMP"

    @classmethod
    def is_cancelable(cls) -> bool:
        return False

    @classmethod
    def quote(cls, identifier: str) -> str:
        return f"`{identifier.replace('`', '``')}`"

    # -- types of seeds

    @classmethod
    def convert_text_type(cls, agate_table: "agate.Table", col_idx: int) -> str:
        return "STRING"

    @classmethod
    def convert_number_type(cls, agate_table: "agate.Table", col_idx: int) -> str:
        import agate

        return "DOUBLE" if agate_table.aggregate(agate.MaxPrecision(col_idx)) else "BIGINT"

    @classmethod
    def convert_integer_type(cls, agate_table: "agate.Table", col_idx: int) -> str:
        return "BIGINT"

    @classmethod
    def convert_boolean_type(cls, agate_table: "agate.Table", col_idx: int) -> str:
        return "BOOLEAN"

    @classmethod
    def convert_datetime_type(cls, agate_table: "agate.Table", col_idx: int) -> str:
        return "TIMESTAMP(6)"

    @classmethod
    def convert_date_type(cls, agate_table: "agate.Table", col_idx: int) -> str:
        return "DATE"

    @classmethod
    def convert_time_type(cls, agate_table: "agate.Table", col_idx: int) -> str:
        return "TIME(0)"

    @available
    def literal(self, value: Any, kind: str) -> str:
        """The SQL of a value of a seed as a column's type."""
        if value is None:
            return f"CAST(NULL AS {kind})"
        if isinstance(value, bool):
            return str(value).upper()
        if isinstance(value, datetime.datetime):
            value = value.replace(tzinfo=None).isoformat(" ")
        text = str(value) if not isinstance(value, Decimal) else format(value, "f")
        return f"CAST('{text.replace(chr(39), chr(39) * 2)}' AS {kind})"

    @available
    def is_declared_as(self, relation: BaseRelation, create_table_as: str) -> bool:
        """Whether a table has the columns, key, partitions and options of CREATE TABLE … AS."""
        session = Session(self.config.credentials.catalog)
        declared, *_ = parse_script(create_table_as)
        assert isinstance(declared, CreateTable) and declared.query is not None
        new = table_of_query(declared, declared.query, session)
        old = session.table((str(relation.schema), str(relation.identifier)))
        columns = [[(each.name, each.type) for each in table.columns] for table in (old, new)]
        keys = [(table.primary_key, table.partitioned_by) for table in (old, new)]
        return (
            columns[0] == columns[1]
            and keys[0] == keys[1]
            and all(old.options.get(name) == value for name, value in new.options.items())
        )

    @available
    def write_script(self, path: str, nodes: Mapping[str, Mapping[str, Any]]) -> int:
        """Write the statements that create the materialized views among a project's nodes.

        The views exist. Each comes after those that it reads. Returns how many there are.
        """
        reads = {name: node.get("depends_on", {}).get("nodes", ()) for name, node in nodes.items()}
        order = [nodes[name] for name in TopologicalSorter(reads).static_order() if name in nodes]
        views = [each for each in order if each["config"]["materialized"] == "materialized_view"]
        relations = (
            self.Relation.create(schema=each["schema"], identifier=each["alias"]) for each in views
        )
        shown = (self._rows(f"SHOW CREATE MATERIALIZED VIEW {each.render()}") for each in relations)
        Path(path).write_text("".join(f"{text};\n\n" for ((text, *_),) in shown))
        return len(views)

    # -- the catalog

    def _rows(self, sql: str) -> list[tuple[Any, ...]]:
        _, cursor = self.connections.add_query(sql, auto_begin=False)
        return cursor.fetchall()

    def list_schemas(self, database: str) -> list[str]:
        return [name for (name,) in self._rows("SHOW DATABASES")]

    def check_schema_exists(self, database: str, schema: str) -> bool:
        return schema in self.list_schemas(database)

    def list_relations_without_caching(self, schema_relation: BaseRelation) -> list[BaseRelation]:
        database, schema = schema_relation.database, schema_relation.schema
        if not self.check_schema_exists(database or "", schema or ""):
            return []
        found: dict[str, RelationType] = {}
        for kind, of in _KINDS:
            for (name,) in self._rows(f"SHOW {kind} IN {self.quote(schema or '')}"):
                found.setdefault(name, of)
        return [
            self.Relation.create(database=database, schema=schema, identifier=name, type=kind)
            for name, kind in found.items()
        ]

    def get_columns_in_relation(self, relation: BaseRelation) -> list[Column]:
        rows = self._rows(f"DESCRIBE {relation.render()}")
        return [Column(str(name), str(kind)) for name, kind, *_ in rows]

    def rename_relation(self, from_relation: BaseRelation, to_relation: BaseRelation) -> None:
        if from_relation.type != RelationType.Table:
            raise DbtRuntimeError(
                f"{from_relation.render()} is a {from_relation.type}, which cannot be renamed; "
                "drop it first, or give the model another alias"
            )
        super().rename_relation(from_relation, to_relation)

    def get_filtered_catalog(
        self, relation_configs: Iterable[Any], used_schemas: Any, relations: Any = None
    ) -> Any:
        # dbt would compare the empty database of a row with None.
        return self.get_catalog(relation_configs, used_schemas)

    def _get_one_catalog(
        self, information_schema: InformationSchema, schemas: set[str], used_schemas: Any
    ) -> "agate.Table":
        from dbt_common.clients.agate_helper import table_from_data_flat

        rows = []
        for schema in schemas:
            place = self.Relation.create(schema=schema)
            for relation in self.list_relations_without_caching(place):
                for number, column in enumerate(self.get_columns_in_relation(relation), 1):
                    values: tuple[Any, ...] = (
                        "",
                        schema,
                        relation.identifier,
                        str(relation.type),
                        "",
                        "",
                    )
                    values += (column.name, number, column.dtype, "")
                    rows.append(dict(zip(_CATALOG, values, strict=True)))
        table = table_from_data_flat(rows, list(_CATALOG))
        return self._catalog_filter_table(table, used_schemas)
