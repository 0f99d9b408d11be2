"""Other elements of scripts for Flink: settings, casts, constants, views."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from tests.unit.sql.conftest import Catalog

from streamhouse.errors import NotStreamedError, OptionError
from streamhouse.sql.options.known_options import check_set

SUM = "'fields.default-aggregate-function' = 'sum'"
TABLES = f"""
CREATE TABLE deals (id BIGINT PRIMARY KEY NOT ENFORCED, agent STRING, n INT, price DECIMAL(10, 2),
  rate DECIMAL(4, 3), real_ DOUBLE);
CREATE TABLE log_ (id BIGINT, agent STRING, n INT);
CREATE TABLE board (name STRING, agent STRING, deals INT, price DECIMAL(20, 2), most INT,
  PRIMARY KEY (name, agent) NOT ENFORCED) WITH ('merge-engine' = 'aggregation', {SUM},
  'fields.most.aggregate-function' = 'max', 'fields.most.ignore-retract' = 'true');
CREATE TABLE whole (name STRING PRIMARY KEY NOT ENFORCED, deals BIGINT, n BIGINT)
  WITH ('merge-engine' = 'aggregation', {SUM});
CREATE TABLE newest (id BIGINT PRIMARY KEY NOT ENFORCED, n INT) WITH ('sequence.field' = 'n');
"""


@pytest.fixture
def deals(catalog: Catalog) -> Catalog:
    catalog.add(TABLES)
    return catalog


def deal(kind: str, agent: str, n: int, price: str = "0") -> dict[str, Any]:
    return {"rowkind": kind, "agent": agent, "n": n, "price": Decimal(price)}


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        ("state.backend.type", "rocksdb", "state in tables"),
        ("table.exec.mini-batch.enabled", "true", "processed together"),
        ("table.exec.sink.upsert-materialize", "NONE", "keep their order"),
        ("execution.checkpointing.mode", "EXACTLY_ONCE", "exactly once"),
        ("execution.checkpointing.timeout", "10 min", "exactly once"),
        ("taskmanager.memory.process.size", "4g", "one Spark driver"),
        ("restart-strategy.type", "fixed-delay", "exactly once"),
        ("sql-client.display.color-schema", "chester", "SQL client"),
        ("table.dynamic-table-options.enabled", "TRUE", "the only supported value"),
    ],
)
def test_settings_without_effect_give_a_notice(key: str, value: str, why: str) -> None:
    notice = check_set(key, value)
    assert notice is not None and notice.startswith(f"SET '{key}' has no effect here: ")
    assert why in notice


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("execution.checkpointing.intervall", "1 s", "did you mean 'execution.checkpointing.inter"),
        ("sql-client.verbos", "true", "did you mean 'sql-client.verbose'"),
        ("table.exec.sink.not-null-enforcer", "DROP", "the only supported value is 'error'"),
        ("table.sql-dialect", "hive", "the only supported value is 'default'"),
        ("execution.savepoint.path", "/s", "resumes from its own checkpoints"),
        ("table.exec.resource.default-parallelism", "0", "'parallelism.default': 0 is too small"),
    ],
)
def test_settings_that_would_change_results_are_errors(key: str, value: str, message: str) -> None:
    with pytest.raises(OptionError) as caught:
        check_set(key, value)
    assert message in str(caught.value)


def test_settings_with_an_effect_give_no_notice() -> None:
    assert check_set("table.exec.resource.default-parallelism", "4") is None
    assert check_set("execution.checkpointing.interval", "3 min") is None


def test_constants_of_the_key_need_no_grouping(deals: Catalog) -> None:
    text = (
        "INSERT INTO board SELECT 'may', agent, CAST(COUNT(*) AS INT), "
        "COALESCE(SUM(price), CAST(0 AS DECIMAL(20, 2))), MAX(n) FROM deals GROUP BY agent"
    )
    rows = [deal("+I", "Ann", 3, "1.5"), deal("+I", "Ann", 9, "2"), deal("-D", "Ann", 9, "2")]
    # What was stays the greatest, as the column says.
    assert deals.rows(text, rows) == [("may", "Ann", 1, Decimal("1.50"), 9)]
    assert deals.rows(text, rows[2:]) == [("may", "Ann", -1, Decimal("-2.00"), None)]


def test_a_sum_over_everything(deals: Catalog) -> None:
    text = "INSERT INTO whole SELECT 'all', COUNT(*), SUM(CASE WHEN n > 1 THEN 1 ELSE 0 END) FROM "
    rows = [{"n": 1}, {"n": 2}]
    assert deals.rows(text + "log_", rows) == [("all", 2, 1)]
    assert deals.rows(text + "log_ WHERE n > 5", rows) == []
    changes = [deal("+I", "Ann", 2), deal("-U", "Ann", 2)]
    assert deals.rows(text + "deals", changes[:1]) == [("all", 1, 1)]
    assert deals.rows(text + "deals", changes[1:]) == [("all", -1, -1)]


@pytest.mark.parametrize("value", ["price * rate", "CAST(real_ AS DOUBLE)", "real_"])
@pytest.mark.parametrize("around", ["{}", "CAST({} AS DECIMAL(20, 2))"])
def test_a_sum_that_would_be_rounded_in_parts_is_refused(
    deals: Catalog, value: str, around: str
) -> None:
    aggregate = around.format(f"SUM({value})")
    with pytest.raises(NotStreamedError, match=r"a sum of type .* stored as DECIMAL\(20, 2\)"):
        deals.stream(
            f"INSERT INTO board (name, agent, price) SELECT 'x', agent, {aggregate} FROM deals "
            "GROUP BY agent"
        )


def test_a_sum_of_rounded_rows_is_accepted(deals: Catalog) -> None:
    text = (
        "INSERT INTO board (name, agent, price) SELECT 'x', agent, "
        "SUM(CAST(price * rate AS DECIMAL(20, 2))) FROM deals GROUP BY agent"
    )
    rows = [{**deal("+I", "Ann", 1, "0.05"), "rate": Decimal("0.1")}] * 2
    assert deals.rows(text, rows) == [("x", "Ann", None, Decimal("0.02"), None)]


RANKED = "(SELECT *, ROW_NUMBER() OVER (PARTITION BY id ORDER BY n DESC) AS rn FROM log_)"


@pytest.mark.parametrize(
    "text",
    [
        f"SELECT id, n FROM (SELECT id, n, rn FROM {RANKED} AS r) AS v WHERE v.rn = 1",
        f"SELECT v.id, v.m FROM (SELECT id, n AS m, rn AS place FROM {RANKED}) AS v "
        "WHERE place <= 1",
        f"SELECT a, b FROM (SELECT w.* FROM (SELECT id AS a, n AS b, rn AS c FROM {RANKED}) AS w) "
        "WHERE c = 1",
        f"WITH v AS (SELECT * FROM {RANKED}) SELECT id, n FROM v WHERE rn = 1",
        f"SELECT id, n FROM (SELECT id, n FROM {RANKED} AS r WHERE rn = 1) AS v",
    ],
)
def test_the_number_may_be_handed_on_by_views(deals: Catalog, text: str) -> None:
    plan = deals.stream(f"INSERT INTO newest {text}")
    assert plan.merging.upsert == "upsert: newest by n of each id"


@pytest.mark.parametrize(
    "text",
    [
        f"SELECT id, n FROM (SELECT id, n, n + 0 AS m, rn FROM {RANKED} AS r) AS v WHERE rn = 1",
    ],
)
def test_another_column_is_not_the_number(deals: Catalog, text: str) -> None:
    with pytest.raises(NotStreamedError):
        deals.stream(f"INSERT INTO newest {text}")


@pytest.mark.parametrize(
    "text",
    [
        f"SELECT id, n FROM (SELECT id, n FROM {RANKED} AS r) AS v",
        f"SELECT id, n FROM (SELECT id, n, rn FROM {RANKED} AS r) AS v WHERE n = 1",
        f"SELECT id, rn FROM (SELECT id, n AS rn FROM {RANKED} AS r) AS v WHERE rn = 1",
    ],
)
def test_a_number_that_nothing_reads_selects_no_rows(deals: Catalog, text: str) -> None:
    assert deals.stream(text).merging.upsert == ""
