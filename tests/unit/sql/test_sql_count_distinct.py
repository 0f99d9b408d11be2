"""COUNT(DISTINCT …) of a continuous GROUP BY: its plan, and unsupported forms."""

from __future__ import annotations

import re
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from tests.unit.sql.conftest import Catalog

from streamhouse.errors import NotStreamedError
from streamhouse.sql.functions.builtin_udfs import register

TABLES = """
CREATE TABLE visits (id INT, place STRING, who INT, at_ TIMESTAMP(3), raw BYTES, score DOUBLE,
  tags ARRAY<STRING>);
CREATE TABLE changing (id INT PRIMARY KEY NOT ENFORCED, place STRING, who INT);
CREATE TABLE board (place STRING PRIMARY KEY NOT ENFORCED, people BIGINT, total BIGINT) WITH (
  'merge-engine' = 'aggregation', 'fields.default-aggregate-function' = 'sum');
CREATE TABLE newest (place STRING PRIMARY KEY NOT ENFORCED, people BIGINT) WITH (
  'merge-engine' = 'aggregation', 'fields.people.aggregate-function' = 'max');
"""


@pytest.fixture
def catalog() -> Catalog:
    made = Catalog()
    made.add(TABLES)
    return made


def values(catalog: Catalog, text: str, **columns: Any) -> set[tuple[Any, ...]]:
    counts = catalog.stream(text).distinct
    assert counts is not None
    count = len(next(iter(columns.values())))
    src = pa.table({**columns, "_row": pa.array(range(count), pa.int64())})
    with duckdb.connect(":memory:") as connection:
        register(connection, counts.sql)
        connection.register("src", src)
        return set(connection.sql(counts.sql).fetchall())


def test_rows_have_0_where_values_are_counted(catalog: Catalog) -> None:
    query = catalog.stream(
        "INSERT INTO board SELECT place, COUNT(DISTINCT who), SUM(id) FROM visits GROUP BY place"
    )
    assert query.merging.grouped and query.distinct is not None
    assert query.distinct.columns == ("people",)
    assert [column.name for column in query.distinct.keys] == ["place"]
    assert query.scan.columns == ("id", "place", "who")


def test_values_are_counted_by_group_and_sign(catalog: Catalog) -> None:
    text = (
        "INSERT INTO board (place, people) SELECT UPPER(place), COUNT(DISTINCT who) "
        "FROM changing WHERE who > 0 GROUP BY UPPER(place)"
    )
    result = values(
        catalog, text, place=["a", "A", "a", "b", "b"], who=[1, 1, 2, 3, 0],
        rowkind=["+I", "+U", "+I", "-D", "-U"],
    )  # fmt: skip
    assert result == {("A", "people", "1", 2), ("A", "people", "2", 1), ("B", "people", "3", -1)}


def test_equal_values_have_one_text(catalog: Catalog) -> None:
    text = "INSERT INTO board SELECT place, COUNT(DISTINCT score), COUNT(DISTINCT raw) FROM visits"
    result = values(
        catalog, f"{text} GROUP BY place", place=["a"] * 3, score=[0.0, -0.0, None],
        raw=[b"\x00\xff", None, b"\\x00"],
    )  # fmt: skip
    assert result == {
        ("a", "people", "0.0", 2), ("a", "total", "00FF", 1), ("a", "total", "5C783030", 1),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("select", "message"),
    [
        ("COUNT(DISTINCT who, id)", "COUNT(DISTINCT …) of several expressions"),
        ("COUNT(DISTINCT tags)", "COUNT(DISTINCT …) of ARRAY<STRING>"),
        ("SUM(DISTINCT who)", "which does not compute its expression"),
        ("COUNT(DISTINCT who) + 1", "which does not compute its expression"),
    ],
)
def test_unsupported_counts_are_errors(catalog: Catalog, select: str, message: str) -> None:
    text = f"INSERT INTO board (place, people) SELECT place, {select} FROM visits GROUP BY place"
    with pytest.raises(NotStreamedError, match=re.escape(message)) as raised:
        catalog.stream(text)
    assert (raised.value.line, raised.value.column) == (1, text.index(select) + 1)


def test_the_target_must_sum_up(catalog: Catalog) -> None:
    text = "INSERT INTO newest SELECT place, COUNT(DISTINCT who) FROM visits GROUP BY place"
    with pytest.raises(NotStreamedError, match="'people' merges by .*, not by sum") as e:
        catalog.stream(text)
    assert e.value.column == text.index("COUNT") + 1
    with pytest.raises(NotStreamedError, match="an aggregation whose target"):
        catalog.stream("SELECT place, COUNT(DISTINCT who) FROM visits GROUP BY place")
