"""What the specification of a query says of its target."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamhouse.connectors.specs import SourceSpec
from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.runtime.query_spec import QuerySpec
from streamhouse.sql.plan import Column, StreamQuery, TableInfo

COLUMNS = (Column("id", "INT", nullable=False), Column("n", "INT"))
SUM = {"merge-engine": "aggregation", "fields.n.aggregate-function": "sum"}


@pytest.mark.parametrize(
    ("primary_key", "options", "commutes"),
    [
        ((), {"bucket": "-1"}, True),
        (("id",), {}, False),
        (("id",), SUM, True),
        (("id",), {**SUM, "aggregation.remove-record-on-delete": "false"}, True),
        # A -D that somebody else commits removes what was merged before it, and nothing after it.
        (("id",), {**SUM, "aggregation.remove-record-on-delete": "true"}, False),
        (("id",), {**SUM, "fields.n.aggregate-function": "last_value"}, False),
    ],
)
def test_commits_commute_if_their_order_changes_no_row(
    tmp_path: Path, primary_key: tuple[str, ...], options: dict[str, str], commutes: bool
) -> None:
    warehouse = {"warehouse": str(tmp_path)}
    target = TableAddress(warehouse, "d.out")
    Warehouse(warehouse).create_database("d")
    options = {"bucket": "1", **options}
    Warehouse(warehouse).create_table("d", "out", COLUMNS, primary_key, options=options)
    query = StreamQuery(
        source=TableInfo(("c", "d", "src"), COLUMNS),
        source_options={},
        source_columns=("id", "n"),
        lookups=(),
        output=COLUMNS,
        rows_sql="SELECT id, n FROM src",
        misses_sql=None,
        changelog=False,
        grouped=False,
        fingerprint="f",
    )
    source = SourceSpec("paimon", {}, COLUMNS, TableAddress(warehouse, "d.src"))
    spec = QuerySpec(query, (source,), (), target, None, None, "q", 1)
    assert spec.commutes is commutes
