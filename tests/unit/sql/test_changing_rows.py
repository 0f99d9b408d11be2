"""The time, and lookups, in queries over rows that change: what is refused, and what is not."""

from __future__ import annotations

import pytest
from tests.unit.sql.conftest import Catalog

from streamhouse.errors import UnsupportedSqlError

SUM = "'fields.%s.aggregate-function' = '%s'"
COLUMNS = (
    "(id INT{}, g STRING, v INT, at_ TIMESTAMP(3), later AS at_ + INTERVAL '1' DAY, "
    "old AS at_ < LOCALTIMESTAMP, proc_time AS PROCTIME())"
)
TABLES = f"""
CREATE TABLE src {COLUMNS.format(" PRIMARY KEY NOT ENFORCED")};
CREATE TABLE log {COLUMNS.format("")};
CREATE TABLE dim (id INT PRIMARY KEY NOT ENFORCED, name STRING, until TIMESTAMP(3),
  valid AS until > CURRENT_TIMESTAMP);
CREATE TABLE out_ (id INT PRIMARY KEY NOT ENFORCED, g STRING, v INT, at_ TIMESTAMP(3));
CREATE TABLE by_day (id INT, day_ DATE, v INT, PRIMARY KEY (id, day_) NOT ENFORCED);
CREATE TABLE by_group (id INT, g STRING, v INT, PRIMARY KEY (id, g) NOT ENFORCED);
CREATE TABLE newest (id INT PRIMARY KEY NOT ENFORCED, n INT, at_ TIMESTAMP(3))
  WITH ('sequence.field' = 'at_');
CREATE TABLE days (day_ DATE PRIMARY KEY NOT ENFORCED, n BIGINT)
  WITH ('merge-engine' = 'aggregation', {SUM % ("n", "sum")});
CREATE TABLE sums (g STRING PRIMARY KEY NOT ENFORCED, n BIGINT, at_ TIMESTAMP(3))
  WITH ('merge-engine' = 'aggregation', {SUM % ("n", "sum")}, {SUM % ("at_", "last_value")});
CREATE TABLE total (id INT PRIMARY KEY NOT ENFORCED, n BIGINT) WITH (
  'merge-engine' = 'aggregation', {SUM % ("n", "sum")});
CREATE TABLE lists (g STRING PRIMARY KEY NOT ENFORCED, ts ARRAY<TIMESTAMP(3)>) WITH (
  'merge-engine' = 'aggregation', {SUM % ("ts", "collect")});
CREATE TABLE topic (id INT PRIMARY KEY NOT ENFORCED, v INT) WITH ('connector' = 'upsert-kafka',
  'topic' = 't', 'properties.bootstrap.servers' = 'h:1', 'key.format' = 'json',
  'value.format' = 'json');
CREATE TABLE mysql (id INT PRIMARY KEY NOT ENFORCED, v INT) WITH ('connector' = 'jdbc',
  'url' = 'jdbc:mysql://h/db', 'table-name' = 't', 'username' = 'u');
"""
JOIN = "JOIN dim FOR SYSTEM_TIME AS OF s.proc_time AS d ON s.v = d.id"
TIMES = (
    "CURRENT_TIMESTAMP", "LOCALTIMESTAMP", "NOW()", "PROCTIME()", "CURRENT_ROW_TIMESTAMP()",
    "CAST(CURRENT_DATE AS TIMESTAMP(3))", "TO_TIMESTAMP(FROM_UNIXTIME(UNIX_TIMESTAMP()))",
)  # fmt: skip
REFUSED = [
    *(f"INSERT INTO out_ SELECT id, g, v, at_ FROM src WHERE at_ > {time}" for time in TIMES),
    "INSERT INTO out_ SELECT id, g, v, at_ FROM src WHERE CAST(at_ AS TIME) < CURRENT_TIME",
    "INSERT INTO out_ SELECT id, g, v, at_ FROM src WHERE old",
    "INSERT INTO out_ SELECT id, g, v, at_ FROM (SELECT *, at_ > NOW() AS x FROM src) WHERE x",
    "INSERT INTO out_ WITH q AS (SELECT * FROM src WHERE old) SELECT id, g, v, at_ FROM q",
    "INSERT INTO out_ SELECT id, g, v, at_ FROM log UNION ALL SELECT id, g, v, at_ FROM src "
    "WHERE at_ < NOW()",
    f"INSERT INTO out_ SELECT s.id, s.g, s.v, s.at_ FROM src AS s {JOIN} AND d.until > NOW()",
    f"INSERT INTO out_ SELECT s.id, s.g, s.v, s.at_ FROM src AS s LEFT {JOIN} AND d.valid",
    f"INSERT INTO out_ SELECT s.id, s.g, s.v, s.at_ FROM src AS s {JOIN} WHERE d.valid",
    "INSERT INTO by_day SELECT id, CURRENT_DATE, v FROM src",
    "INSERT INTO days SELECT CURRENT_DATE, COUNT(*) FROM src GROUP BY CURRENT_DATE",
    "INSERT INTO days SELECT d, COUNT(*) FROM (SELECT CAST(NOW() AS DATE) AS d FROM src) "
    "GROUP BY d",
    "INSERT INTO sums (g, n) SELECT g, SUM(TIMESTAMPDIFF(DAY, at_, NOW())) FROM src GROUP BY g",
    "INSERT INTO sums (g, n) SELECT g, COUNT(CASE WHEN old THEN 1 END) FROM src GROUP BY g",
    "INSERT INTO sums (g, n) SELECT g, COUNT(*) FILTER (WHERE old) FROM src GROUP BY g",
    "INSERT INTO total SELECT id, TIMESTAMPDIFF(DAY, at_, NOW()) FROM src",
    "INSERT INTO lists SELECT g, ARRAY[NOW()] FROM src",
    "INSERT INTO newest SELECT id, v, TIMESTAMPADD(DAY, v, NOW()) FROM src",
    "INSERT INTO topic SELECT id, v FROM src WHERE old",
    "INSERT INTO mysql SELECT id, v FROM src WHERE old",
]


@pytest.fixture
def changing(catalog: Catalog) -> Catalog:
    catalog.add(TABLES)
    return catalog


@pytest.mark.parametrize("text", REFUSED)
def test_a_time_that_a_retraction_would_compute_anew_is_refused(
    changing: Catalog, text: str
) -> None:
    with pytest.raises(UnsupportedSqlError) as error:
        changing.stream(text)
    assert "the current time in" in str(error.value)
    if "UNION" not in text:
        changing.stream(text.replace("FROM src", "FROM log"))


@pytest.mark.parametrize(
    "text",
    [
        "INSERT INTO out_ SELECT id, g, v, at_ FROM src WHERE at_ > DATE '2024-01-01'",
        "INSERT INTO out_ SELECT id, g, v, at_ FROM src WHERE later > at_",
        "INSERT INTO out_ SELECT id, g, v, NOW() FROM src",
        "INSERT INTO out_ SELECT id, CASE WHEN old THEN 'old' END, v, at_ FROM src",
        "INSERT INTO out_ (id, at_) SELECT id, at_ FROM (SELECT *, NOW() AS n FROM src)",
        "INSERT INTO newest SELECT id, v, CAST(NOW() AS TIMESTAMP(3)) FROM src",
        "INSERT INTO sums SELECT g, SUM(v), NOW() FROM src GROUP BY g",
        f"INSERT INTO out_ SELECT s.id, d.name, s.v, s.proc_time FROM src AS s {JOIN}",
        "SELECT id, old FROM src",
    ],
)
def test_other_times_are_allowed(changing: Catalog, text: str) -> None:
    assert changing.stream(text).scan.changelog


@pytest.mark.parametrize(
    ("text", "column"),
    [
        (f"INSERT INTO by_group SELECT s.id, d.name, s.v FROM src AS s LEFT {JOIN}", "'g'"),
        (
            "INSERT INTO by_group SELECT id, UPPER(n), v FROM (SELECT s.id, d.name AS n, s.v "
            f"FROM src AS s {JOIN}) AS q",
            "'g'",
        ),
        (f"INSERT INTO newest SELECT s.id, s.v, d.until FROM src AS s {JOIN}", "'at_'"),
    ],
)
def test_a_lookup_decides_no_key_and_no_sequence(changing: Catalog, text: str, column: str) -> None:
    with pytest.raises(UnsupportedSqlError, match=f"{column}.*comes from a lookup"):
        changing.stream(text)
    changing.stream(text.replace("FROM src", "FROM log"))


@pytest.mark.parametrize("table", ["out_ (id, v)", "topic", "mysql"])
def test_retractions_reach_every_sink_that_deletes_by_key(changing: Catalog, table: str) -> None:
    text = f"INSERT INTO {table} SELECT s.id, d.id FROM src AS s {JOIN} WHERE d.name = 'x'"
    kinds = ("+I", "-U", "+U", "-D")
    rows = [{"id": n, "v": n, "rowkind": kind} for n, kind in enumerate(kinds)]
    for dimension in ([], [{"id": 1, "name": "y"}, {"id": 3, "name": "y"}]):
        found = [(row[0], row[-1]) for row in changing.rows(text, rows, dimension)]
        assert sorted(found) == [(1, "-U"), (3, "-D")]


def test_values_that_a_condition_protects_are_not_computed_for_retractions(
    changing: Catalog,
) -> None:
    """The name was a number when the row was added, and is none when it is deleted."""
    where = "WHERE CHAR_LENGTH(d.name) = 1"
    flat = f"SELECT s.id, CAST(d.name AS INT) AS v FROM src AS s {JOIN} {where}"
    rows = [{"id": n, "v": 1, "rowkind": kind} for n, kind in enumerate(("+I", "-D"))]
    for text in (flat, f"SELECT id, v + 1 FROM ({flat}) AS q WHERE v > 0"):
        insert = f"INSERT INTO out_ (id, v) {text}"
        assert changing.rows(insert, rows, [{"id": 1, "name": "xx"}]) == [
            (1, None, None, None, "-D")
        ]
