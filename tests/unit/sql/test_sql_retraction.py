"""Sums over changing rows: the planner's SQL, executed over all orders of changes."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.sql.conftest import Catalog, _relations, _run

from streamhouse.errors import UnsupportedSqlError
from streamhouse.sql.plan import Merging, StreamQuery

SUM = "'fields.%s.aggregate-function' = 'sum'"
LAST = "'fields.%s.aggregate-function' = 'last_non_null_value'"
TABLES = f"""
CREATE TABLE sales (id BIGINT PRIMARY KEY NOT ENFORCED, agent STRING, price DECIMAL(10, 2), n INT,
  at_ TIMESTAMP(3), p AS PROCTIME()) WITH ('changelog-producer' = 'input');
CREATE TABLE log (id BIGINT, agent STRING, price DECIMAL(10, 2), n INT, at_ TIMESTAMP(3));
CREATE TABLE score (agent STRING PRIMARY KEY NOT ENFORCED, total DECIMAL(10, 2), rows_ BIGINT,
  ns BIGINT, at_ TIMESTAMP(3)) WITH ('merge-engine' = 'aggregation',
  {SUM % "total"}, {SUM % "rows_"}, {SUM % "ns"}, {LAST % "at_"});
CREATE TABLE plain (agent STRING PRIMARY KEY NOT ENFORCED, total DECIMAL(10, 2), at_ TIMESTAMP(3))
  WITH ('merge-engine' = 'aggregation', {SUM % "total"}, {LAST % "at_"});
CREATE TABLE removes (agent STRING PRIMARY KEY NOT ENFORCED, total DECIMAL(10, 2)) WITH (
  'merge-engine' = 'aggregation', {SUM % "total"},
  'aggregation.remove-record-on-delete' = 'true');
CREATE TABLE grows (agent STRING PRIMARY KEY NOT ENFORCED, total DECIMAL(10, 2)) WITH (
  'merge-engine' = 'aggregation', {SUM % "total"}, 'ignore-delete' = 'true');
CREATE TABLE greatest_ (agent STRING PRIMARY KEY NOT ENFORCED, total DECIMAL(10, 2), n INT) WITH (
  'merge-engine' = 'aggregation', {SUM % "total"}, 'fields.n.aggregate-function' = 'max');
CREATE TABLE ever (agent STRING PRIMARY KEY NOT ENFORCED, total DECIMAL(10, 2), n INT) WITH (
  'merge-engine' = 'aggregation', {SUM % "total"}, 'fields.n.aggregate-function' = 'max',
  'fields.n.ignore-retract' = 'true');
CREATE TABLE ordered (agent STRING PRIMARY KEY NOT ENFORCED, total DECIMAL(10, 2),
  at_ TIMESTAMP(3)) WITH ('merge-engine' = 'aggregation', 'sequence.field' = 'at_',
  {SUM % "total"}, {LAST % "at_"});
CREATE TABLE last_ (agent STRING PRIMARY KEY NOT ENFORCED, at_ TIMESTAMP(3)) WITH (
  'merge-engine' = 'aggregation', 'fields.at_.aggregate-function' = 'last_value');
"""
GROUPED = (
    "INSERT INTO score SELECT agent, SUM(price), COUNT(*), SUM(CASE WHEN n > 1 THEN n END), "
    "LAST_VALUE(at_) FROM sales GROUP BY agent"
)


@pytest.fixture
def sales(catalog: Catalog) -> Catalog:
    catalog.add(TABLES)
    return catalog


def change(kind: str, agent: str, price: str | None, n: int | None = None, **more: Any) -> Any:
    value = None if price is None else Decimal(price)
    return {"rowkind": kind, "agent": agent, "price": value, "n": n, **more}


def test_retractions_are_subtracted(sales: Catalog) -> None:
    rows = [
        change("+I", "Ann", "5.00", 3),
        change("+I", "Ann", "7.00", 1),
        change("+I", "Ben", None, None),
        change("-U", "Ann", "5.00", 3),
        change("+U", "Ben", "6.00", 4),
        change("-D", "Cid", "1.00", 9),
    ]
    plan = sales.stream(GROUPED)
    assert plan.scan.changelog and not plan.row_kinds
    assert plan.merging == Merging(grouped=True, signed=True)
    assert sorted(sales.rows(GROUPED, rows)) == [
        ("Ann", Decimal("7.00"), 1, 0, None),
        ("Ben", Decimal("6.00"), 2, 4, None),
        ("Cid", Decimal("-1.00"), -1, -9, None),
    ]


def test_counts_of_columns_and_of_some_rows(sales: Catalog) -> None:
    text = (
        "INSERT INTO score (agent, rows_, ns, total) SELECT agent, COUNT(n), "
        "COUNT(*) FILTER (WHERE n > 1), COALESCE(SUM(price), 0) FROM sales GROUP BY agent"
    )
    rows = [
        change("+I", "Ann", "1.00", 2),
        change("+I", "Ann", None, None),
        change("-U", "Ann", "1.00", 2),
        change("+U", "Ann", "1.00", 1),
        change("+I", "Ben", None, None),
    ]
    assert sorted(sales.rows(text, rows)) == [
        ("Ann", Decimal("1.00"), 1, 0, None),
        ("Ben", Decimal("0.00"), 0, 0, None),
    ]


@functools.cache
def planned() -> StreamQuery:
    catalog = Catalog()
    catalog.add(TABLES)
    return catalog.stream(
        "INSERT INTO score (agent, total, rows_) SELECT agent, SUM(price), COUNT(*) FROM sales "
        "GROUP BY agent"
    )


@settings(max_examples=25)
@given(
    st.lists(
        st.tuples(st.integers(1, 4), st.sampled_from(["Ann", "Ben", None]), st.integers(-9, 9)),
        max_size=12,
    ),
    st.lists(st.booleans(), min_size=12, max_size=12),
)
def test_any_history_sums_to_the_remaining_rows(
    history: Sequence[tuple[int, str | None, int]], cuts: Sequence[bool]
) -> None:
    """Rows are made, changed, moved to another agent, deleted (None); batches cut anywhere."""
    plan = planned()
    current: dict[int, tuple[str, int]] = {}
    batches: list[list[Any]] = [[]]
    for (key, agent, price), cut in zip(history, cuts, strict=False):
        before = current.pop(key, None)
        changes = batches[-1]
        if before is not None:
            kind = "-D" if agent is None else "-U"
            changes.append(change(kind, before[0], str(before[1])))
        if agent is not None:
            current[key] = (agent, price)
            changes.append(change("+I" if before is None else "+U", agent, str(price)))
        if cut:
            batches.append([])
    sums: dict[str, list[Any]] = {}
    for batch in filter(None, batches):
        for agent, total, count, _, _ in _run(plan.rows.sql, _relations(plan, batch, ())):
            so_far = sums.setdefault(agent, [0, 0])
            so_far[0] += total
            so_far[1] += count
    expected: dict[str, list[Any]] = {}
    for agent, price in current.values():
        so_far = expected.setdefault(agent, [0, 0])
        so_far[0] += price
        so_far[1] += 1
    assert {key: value for key, value in sums.items() if value != [0, 0]} == {
        key: value for key, value in expected.items() if value != [0, 0]
    }


def test_last_values_are_of_rows_that_came(sales: Catalog) -> None:
    import datetime

    times = [datetime.datetime(2026, 1, day) for day in range(1, 6)]
    rows = [
        change("+I", "Ann", "1", at_=times[0]),
        change("-U", "Ann", "1", at_=times[0]),
        change("+U", "Ben", "1", at_=times[1]),
        change("+I", "Ann", "2", at_=times[2]),
        change("+I", "Ann", "3", at_=None),
        change("-D", "Cid", "3", at_=times[4]),
    ]
    result = {row[0]: row[4] for row in sales.rows(GROUPED, rows)}
    assert result == {"Ann": times[2], "Ben": times[1], "Cid": None}


def test_rows_without_group_by_carry_their_sign(sales: Catalog) -> None:
    rows = [change("+I", "Ann", "5.00", at_=None), change("-D", "Ann", "5.00", at_=None)]
    text = "INSERT INTO plain SELECT agent, price, at_ FROM sales"
    assert sales.stream(text).merging.signed
    assert sales.rows(text, rows) == [
        ("Ann", Decimal("5.00"), None), ("Ann", Decimal("-5.00"), None)
    ]  # fmt: skip
    assert not sales.stream("INSERT INTO plain SELECT agent, price, at_ FROM log").merging.signed


def test_columns_that_a_change_must_not_touch(sales: Catalog) -> None:
    import datetime

    noon = datetime.datetime(2026, 1, 1, 12)
    rows = [change("-U", "Ann", "5.00", 7, at_=noon)]
    result = sales.rows("INSERT INTO plain SELECT agent, price, at_ FROM sales", rows)
    assert result == [("Ann", Decimal("-5.00"), None)]
    result = sales.rows("INSERT INTO ever SELECT agent, price, n FROM sales", rows)
    assert result == [("Ann", Decimal("-5.00"), None)]
    # The order of rows is told by their own time, taken back or not.
    result = sales.rows("INSERT INTO ordered SELECT agent, price, at_ FROM sales", rows)
    assert result == [("Ann", Decimal("-5.00"), noon)]


@pytest.mark.parametrize(
    "text",
    [
        "INSERT INTO removes SELECT agent, price FROM sales",
        "INSERT INTO grows SELECT agent, price FROM sales",
        "INSERT INTO last_ SELECT agent, at_ FROM sales",
        "INSERT INTO customers (id, name) SELECT CAST(id AS INT), agent FROM sales",
        "SELECT agent, price FROM sales",
    ],
)
def test_other_targets_get_the_row_kinds(sales: Catalog, text: str) -> None:
    plan = sales.stream(text)
    assert plan.row_kinds and not plan.merging.signed


def test_sums_through_a_lookup_and_a_filter(sales: Catalog) -> None:
    text = (
        "INSERT INTO score (agent, total, rows_) SELECT c.country, SUM(s.price), COUNT(*) "
        "FROM sales AS s JOIN customers FOR SYSTEM_TIME AS OF s.p AS c ON c.name = s.agent "
        "WHERE s.n > 1 GROUP BY c.country"
    )
    rows = [
        change("+I", "Ann", "5.00", 2),
        change("+I", "Bob", "7.00", 2),
        change("-U", "Ann", "5.00", 2),
        change("+U", "Ann", "6.00", 1),
    ]
    people = [{"name": "Ann", "country": "Peru"}, {"name": "Bob", "country": "Peru"}]
    assert sales.rows(text, rows, people) == [("Peru", Decimal("7.00"), 1, None, None)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "INSERT INTO greatest_ SELECT agent, SUM(price), MAX(n) FROM sales GROUP BY agent",
            "MAX over a table whose rows change",
        ),
        (
            "INSERT INTO greatest_ SELECT agent, price, n FROM sales",
            "line 1, column 44: column 'n' merges by max, which cannot retract a row",
        ),
        (
            "INSERT INTO last_ SELECT agent, LAST_VALUE(at_) FROM sales GROUP BY agent",
            "LAST_VALUE over a table whose rows change",
        ),
        (
            "INSERT INTO score (agent, total) SELECT agent, AVG(price) FROM sales GROUP BY agent",
            "'total' merges by sum, which does not compute its expression",
        ),
        (
            "INSERT INTO score (agent, total) SELECT agent, CAST(SUM(price) AS INT) FROM sales "
            "GROUP BY agent",
            "'total' merges by sum, which does not compute its expression",
        ),
        (
            "INSERT INTO score (agent, total) SELECT n, SUM(price) FROM sales GROUP BY n, agent",
            "a GROUP BY that is not the primary key of its target",
        ),
    ],
)
def test_aggregates_that_cannot_retract_are_refused(
    sales: Catalog, text: str, message: str
) -> None:
    with pytest.raises(UnsupportedSqlError) as caught:
        sales.stream(text)
    assert message in str(caught.value)


def test_a_group_whose_values_have_become_null_adds_up_to_zero(sales: Catalog) -> None:
    text = (
        "INSERT INTO score (agent, total, rows_) SELECT agent, SUM(price), COUNT(price) FROM sales "
        "GROUP BY agent"
    )
    first = sales.rows(text, [change("+I", "Ann", "5.00"), change("+I", "Ben", None)])
    assert sorted(first) == [("Ann", Decimal("5.00"), 1, None, None), ("Ben", None, 0, None, None)]
    # What the table adds: 5 - 5, and 1 - 1, which tells that no value is left.
    then = sales.rows(text, [change("-U", "Ann", "5.00"), change("+U", "Ann", None)])
    assert then == [("Ann", Decimal("-5.00"), -1, None, None)]
