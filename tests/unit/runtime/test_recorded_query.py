"""A query's definition stays the same through JSON, as the lineage stores it."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from streamhouse.connectors.registry import declared, names
from streamhouse.connectors.specs import SourceSpec
from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.runtime.query_spec import QuerySpec
from streamhouse.runtime.state.recorded_query import definition_json, spec_of
from streamhouse.sql.plan import Column, LookupJoin, OutputRows, StreamQuery, StreamScan, TableInfo

ID = (Column("id", "INT"),)
TARGET = TableAddress({"warehouse": "/w"}, "d.out", 0)


def joined(source: TableInfo, dimension: TableInfo) -> StreamQuery:
    """The ids of a source, which are looked up in a dimension."""
    return StreamQuery(
        StreamScan(source, ("id",), changelog=False),
        (LookupJoin(dimension, "dim_0", ("id",), ("id",), False),),
        OutputRows("SELECT id FROM src", ID),
        "f",
    )


def test_tables_of_other_catalogs_stay_there() -> None:
    info = TableInfo(("c", "d", "dim"), ID)
    query = joined(info, info)
    other = TableAddress({"warehouse": "/other"}, "d.dim", 3)
    source = SourceSpec("paimon", {}, ID, other)
    spec = QuerySpec(query, source, (other,), TARGET, "q", parallelism=1)

    again = spec_of(definition_json(spec), TARGET, "q")

    (address,) = again.source_tables
    assert (address, again.lookups) == (other, (other,))
    assert address.warehouse == {"warehouse": "/other"}


@pytest.mark.parametrize("connector", names())
def test_it_is_the_same_afterwards(connector: str) -> None:
    info = declared(TableInfo(("c", "d", "dim"), ID, connector=connector))
    query = joined(replace(info, name=("c", "d", "src")), info)
    spec = QuerySpec(query, SourceSpec(connector, {}, ID), (TARGET,), TARGET, "q", parallelism=1)

    text = definition_json(spec)
    again = spec_of(text, TARGET, "q")

    assert again.query == query
    assert definition_json(again) == text
    assert "capabilities" not in json.dumps(json.loads(text))
