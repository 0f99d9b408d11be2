"""GROUP BY over streams: keys, aggregates, and unsupported forms."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest
from tests.unit.sql.conftest import NOW, Catalog

from streamhouse.errors import NotStreamedError

TABLES = """
CREATE TABLE paid (id BIGINT PRIMARY KEY NOT ENFORCED, day_ STRING, city STRING, agent INT,
  price DECIMAL(10, 2), real_ DOUBLE);
CREATE TABLE seen (day_ STRING, city STRING, agent INT, price DECIMAL(10, 2), real_ DOUBLE);
CREATE TABLE board (month_ STRING, city STRING, label STRING, n BIGINT, members BIGINT,
  price DECIMAL(20, 2), update_time TIMESTAMP(3),
  PRIMARY KEY (month_, city) NOT ENFORCED) WITH ('merge-engine' = 'aggregation',
  'fields.n.aggregate-function' = 'sum', 'fields.members.aggregate-function' = 'sum',
  'fields.price.aggregate-function' = 'sum', 'fields.label.aggregate-function' = 'last_value',
  'fields.update_time.aggregate-function' = 'last_non_null_value');
CREATE TABLE agents (agent BIGINT PRIMARY KEY NOT ENFORCED, city STRING, n BIGINT, last_ STRING)
  WITH ('merge-engine' = 'aggregation', 'fields.n.aggregate-function' = 'sum',
  'fields.city.aggregate-function' = 'last_value',
  'fields.last_.aggregate-function' = 'last_value');
"""
INSTANT = datetime.fromisoformat(NOW).replace(microsecond=123000)


@pytest.fixture
def paid(catalog: Catalog) -> Catalog:
    catalog.add(TABLES)
    return catalog


def row(day: str, city: str | None, price: str = "1", kind: str = "+I") -> dict[str, Any]:
    return {"rowkind": kind, "day_": day, "city": city, "price": Decimal(price), "agent": 7}


def test_keys_and_values_may_be_made_of_the_groups(paid: Catalog) -> None:
    text = (
        "INSERT INTO board SELECT SUBSTRING(day_, 1, 7), COALESCE(city, '未知'), "
        "CONCAT(city, '/', SUBSTRING(day_, 1, 7)), COUNT(*), COUNT(agent), SUM(price), "
        "CURRENT_TIMESTAMP FROM {} GROUP BY SUBSTRING(day_, 1, 7), city"
    )
    rows = [row("2026-05-01", "上海"), row("2026-05-02", "上海", "2"), row("2026-05-02", None)]
    expected = [
        ("2026-05", "上海", "上海/2026-05", 2, 2, Decimal(3), INSTANT),
        ("2026-05", "未知", None, 1, 1, Decimal(1), INSTANT),
    ]
    for table in ("seen", "paid"):
        assert sorted(paid.rows(text.format(table), rows)) == expected
    taken = [row("2026-05-01", "上海", "2", "-U")]
    back = ("2026-05", "上海", "上海/2026-05", -1, -1, Decimal(-2), INSTANT)
    assert paid.rows(text.format("paid"), taken) == [back]


@pytest.mark.parametrize("key", ["CAST(agent AS BIGINT)", "agent", "agent + 1", "IFNULL(agent, 0)"])
def test_a_key_may_be_cast(paid: Catalog, key: str) -> None:
    text = f"INSERT INTO agents (agent, n) SELECT {key}, COUNT(*) FROM seen GROUP BY agent"
    ((result, _, count, _),) = paid.rows(text, [row("", ""), row("", "")])
    assert (result, count) == (8 if "+" in key else 7, 2)


def test_a_cast_of_the_last_value_is_a_last_value(paid: Catalog) -> None:
    text = (
        "INSERT INTO agents (agent, last_) SELECT agent, CAST(LAST_VALUE(price) AS STRING) "
        "FROM seen GROUP BY agent"
    )
    assert paid.rows(text, [row("", "", "1"), row("", "", "2")]) == [(7, None, None, "2.00")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "INSERT INTO agents (agent, city, n) SELECT agent, city, COUNT(*) FROM seen "
            "GROUP BY agent, city",
            "a GROUP BY that is not the primary key of its target, agent",
        ),
        (
            "INSERT INTO agents (agent, n) SELECT price, COUNT(*) FROM seen GROUP BY agent",
            "a GROUP BY that is not the primary key of its target, agent",
        ),
        (
            "INSERT INTO agents (agent, n) SELECT UNIX_TIMESTAMP(), COUNT(*) FROM seen",
            "a GROUP BY that is not the primary key of its target, agent",
        ),
        (
            "INSERT INTO agents (agent, n) SELECT COUNT(*), COUNT(*) FROM seen",
            "a GROUP BY that is not the primary key of its target, agent",
        ),
        (
            "INSERT INTO agents (agent, n) SELECT agent, agent FROM seen GROUP BY agent",
            "column 'n' merges by sum, not by last_value",
        ),
        (
            "INSERT INTO agents (agent, city) SELECT agent, city FROM seen GROUP BY agent",
            "column 'city' merges by last_value, which does not compute its expression",
        ),
        (
            "INSERT INTO agents (agent, n) SELECT agent, SUM(price) / COUNT(*) FROM seen "
            "GROUP BY agent",
            "column 'n' merges by sum, which does not compute its expression",
        ),
        (
            "INSERT INTO board (month_, city, price) SELECT day_, city, SUM(real_) FROM seen "
            "GROUP BY day_, city",
            "a sum of type DOUBLE, stored as DECIMAL",
        ),
    ],
)
def test_aggregates_without_a_merge_function_are_refused(
    paid: Catalog, text: str, message: str
) -> None:
    with pytest.raises(NotStreamedError) as caught:
        paid.stream(text)
    assert message in caught.value.message


def test_floating_numbers_are_rounded_row_by_row(paid: Catalog) -> None:
    text = "INSERT INTO board (month_, city, price) SELECT day_, city, real_ * 1.1 FROM seen"
    result = paid.rows(text, [{**row("mon", "x"), "real_": 0.1}])
    assert result[0][5] == Decimal("0.11")
