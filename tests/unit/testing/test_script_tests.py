"""Test cases of scripts: what passes, what fails and how that is drawn, and what is refused."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from streamhouse.cli.main import build
from streamhouse.errors import StreamhouseError
from streamhouse.operators.trees.incremental import SourceChange
from streamhouse.runtime.state.batch_logs import FIXED_MS
from streamhouse.runtime.views import incremental
from streamhouse.runtime.views.net_change import net_change
from streamhouse.testing.run import Outcome, run_tests

SHOP = """
CREATE TEMPORARY TABLE orders (
  id BIGINT, customer_id INT, price DECIMAL(10, 2), at TIMESTAMP(3)
) WITH (
  'connector' = 'kafka', 'topic' = 'orders', 'format' = 'json',
  'properties.bootstrap.servers' = 'nowhere:9092');
CREATE TEMPORARY TABLE customers (
  id INT, name STRING NOT NULL, country STRING, PRIMARY KEY (id) NOT ENFORCED
) WITH ('connector' = 'mysql-cdc', 'hostname' = 'nowhere', 'username' = 'u', 'password' = 'p',
  'database-name' = 'shop', 'table-name' = 'customers');
CREATE MATERIALIZED VIEW revenue AS
SELECT country, COUNT(*) AS orders, SUM(price) AS revenue
FROM orders JOIN customers ON customer_id = customers.id GROUP BY country;
"""
EVERY = """
CREATE TEMPORARY TABLE events (
  id BIGINT, k STRING, v INT, at TIMESTAMP(3), offset BIGINT METADATA VIRTUAL,
  day AS DATE_FORMAT(at, 'yyyy-MM-dd'), WATERMARK FOR at AS at - INTERVAL '1' SECOND
) WITH ('connector' = 'kafka', 'topic' = 'e', 'properties.bootstrap.servers' = 'nowhere:9092',
  'format' = 'json');
CREATE TEMPORARY TABLE names (k STRING, name STRING, PRIMARY KEY (k) NOT ENFORCED) WITH (
  'connector' = 'jdbc', 'url' = 'jdbc:mysql://nowhere/shop', 'table-name' = 'names',
  'username' = 'u', 'password' = 'p');
CREATE TEMPORARY TABLE printed (k STRING, n BIGINT) WITH ('connector' = 'print');
CREATE TEMPORARY TABLE sent (k STRING, name STRING, v INT) WITH (
  'connector' = 'kafka', 'topic' = 's', 'properties.bootstrap.servers' = 'nowhere:9092',
  'format' = 'json');
CREATE TEMPORARY TABLE upserted (k STRING, total BIGINT, PRIMARY KEY (k) NOT ENFORCED) WITH (
  'connector' = 'upsert-kafka', 'topic' = 'u', 'properties.bootstrap.servers' = 'nowhere:9092',
  'key.format' = 'json', 'value.format' = 'json');
CREATE TABLE closed (k STRING, window_end TIMESTAMP(3), n BIGINT);
CREATE TABLE latest (k STRING, v INT, day STRING, PRIMARY KEY (k) NOT ENFORCED) WITH (
  'changelog-producer' = 'lookup', 'deletion-vectors.enabled' = 'true');
CREATE TABLE sums (k STRING, total BIGINT, PRIMARY KEY (k) NOT ENFORCED) WITH (
  'merge-engine' = 'aggregation', 'fields.total.aggregate-function' = 'sum');
CREATE VIEW large AS SELECT k, v FROM latest WHERE v > 1;
CREATE MATERIALIZED VIEW counts AS SELECT k, COUNT(*) AS n FROM events GROUP BY k;
CREATE MATERIALIZED VIEW groups AS SELECT n, COUNT(*) AS c FROM counts GROUP BY n;
INSERT INTO printed SELECT k, COUNT(*) FROM events GROUP BY k;
INSERT INTO sent SELECT e.k, n.name, e.v FROM (SELECT *, PROCTIME() AS now FROM events) AS e
LEFT JOIN names FOR SYSTEM_TIME AS OF e.now AS n ON e.k = n.k;
INSERT INTO upserted SELECT k, SUM(v) FROM events GROUP BY k;
INSERT INTO closed SELECT k, window_end, COUNT(*)
FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(at), INTERVAL '10' SECONDS))
GROUP BY k, window_start, window_end;
INSERT INTO latest SELECT k, v, day FROM events;
INSERT INTO sums SELECT k, SUM(v) FROM latest GROUP BY k;
"""
EVERY_CASE = """
tests:
- name: tables, views and sinks
  rounds:
  - given:
      names: [{k: a, name: Ann}]
      events: |
        id, k, v, at,                      offset
        1,  a, 1, 2026-01-01 00:00:01,     10
        2,  b, 2, 2026-01-01 00:00:02.500, 11
    expect:
      counts: [{k: a, n: 1}, {k: b, n: 1}]
      groups: [{n: 1, c: 2}]
      printed: [{k: a, n: 1}, {k: b, n: 1}]
      sent: [{k: a, name: Ann, v: 1}, {k: b, name: null, v: 2}]
      upserted: [{k: a, total: 1}, {k: b, total: 2}]
      closed: []
      latest: [{k: a, v: 1, day: 2026-01-01}, {k: b, v: 2, day: 2026-01-01}]
      large: [{k: b, v: 2}]
      sums: [{k: a, total: 1}, {k: b, total: 2}]
  - given:
      names: [{op: delete, k: a}, {k: b, name: Bob}]
      events:
      - {id: 3, k: a, v: 5, at: 2026-01-01 00:00:11}
      - {id: 4, k: b, v: 6, at: 2026-01-01 00:00:12}
    expect:
      counts: [{k: a, n: 2}, {k: b, n: 2}]
      groups: [{n: 2, c: 2}]
      printed: [{k: a, n: 2}, {k: b, n: 2}]
      upserted: [{k: a, total: 6}, {k: b, total: 8}]
      sent:
      - {k: a, name: Ann, v: 1}
      - {k: b, name: null, v: 2}
      - {k: a, name: null, v: 5}
      - {k: b, name: Bob, v: 6}
      closed:
      - {k: a, window_end: 2026-01-01 00:00:10, n: 1}
      - {k: b, window_end: 2026-01-01 00:00:10, n: 1}
      sums: [{k: a, total: 5}, {k: b, total: 6}]
    expect_changes:
      latest:
      - {op: -U, k: a, v: 1}
      - {op: +U, k: a, v: 5}
      - {op: -U, k: b, v: 2}
      - {op: update, k: b, v: 6}
      counts: [{op: update, k: a, n: 2}, {op: update, k: b, n: 2}]
      groups: [{op: delete, n: 1}, {op: insert, n: 2}]
      closed: [{k: a}, {k: b}]
"""


def outcomes(folder: Path, script: str, tests: str) -> list[Outcome]:
    (folder / "script.sql").write_text(script)
    (folder / "test_script.yml").write_text(f"script: script.sql\n{tests}")
    return list(run_tests(folder / "test_script.yml"))


def problems(folder: Path, script: str, tests: str) -> str:
    (outcome,) = outcomes(folder, script, tests)
    return "\n".join(outcome.problems)


def case(**rounds: Any) -> str:
    return json.dumps({"tests": [{"name": "case", **rounds}]})[1:-1]


def test_views_streams_windows_and_sinks_of_a_script(tmp_path: Path) -> None:
    (outcome,) = outcomes(tmp_path, EVERY, EVERY_CASE)
    assert outcome.problems == []
    assert FIXED_MS.get() == 0


@pytest.mark.parametrize("seed", range(4))
def test_rounds_as_a_model_computes_them(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    orders: list[tuple[int, int]] = []
    countries: dict[int, str] = {}
    rounds: list[dict[str, Any]] = []
    for _ in range(4):
        new = [(draw.randrange(4), draw.randrange(1, 500)) for _ in range(draw.randrange(4))]
        changes: list[dict[str, Any]] = []
        for customer in draw.sample(range(4), draw.randrange(3)):
            if customer not in countries:
                countries[customer] = draw.choice("XYZ")
                changes.append({"id": customer, "name": "n", "country": countries[customer]})
            elif draw.random() < 0.5:
                countries[customer] = draw.choice("XYZ")
                changes.append({"op": "update", "id": customer, "country": countries[customer]})
            else:
                del countries[customer]
                changes.append({"op": "delete", "id": customer})
        first = len(orders)
        orders += new
        given = [
            {"id": first + n, "customer_id": customer, "price": price}
            for n, (customer, price) in enumerate(new)
        ]
        sums, counts = Counter[str](), Counter[str]()
        for customer, price in orders:
            if customer in countries:
                sums[countries[customer]] += price
                counts[countries[customer]] += 1
        expected = [{"country": c, "orders": n, "revenue": sums[c]} for c, n in counts.items()]
        rounds.append(
            {"given": {"orders": given, "customers": changes}, "expect": {"revenue": expected}}
        )
    assert problems(tmp_path, SHOP, case(rounds=_texts(rounds))) == ""
    # A test that expects another value fails.
    other = next((r["expect"]["revenue"] for r in rounds if r["expect"]["revenue"]), None)
    if other is not None:
        other[0]["orders"] += 1
        assert "expect revenue (- expected, + actual)" in problems(
            tmp_path, SHOP, case(rounds=_texts(rounds))
        )


def _texts(value: Any) -> Any:
    return json.loads(json.dumps(value))


ORDERS = [{"id": n, "customer_id": n, "price": "1.50"} for n in (1, 2, 3)]
CUSTOMERS = [{"id": n, "name": "n", "country": country} for n, country in ((1, "A"), (2, None))]


def test_differing_rows_are_drawn(tmp_path: Path) -> None:
    given = {"orders": ORDERS, "customers": CUSTOMERS}
    expected = [
        {"country": "A", "orders": 2, "revenue": "1.5"},
        {"country": "NULL", "orders": 1, "revenue": "1.50"},
        {"country": "Chile", "orders": 7},
    ]
    found = problems(tmp_path, SHOP, case(given=given, expect={"revenue": expected}))
    assert found.splitlines() == [
        "round 1: expect revenue (- expected, + actual)",
        '  - {country: "A", orders: 2, revenue: 1.50}',
        "  ?                        ^",
        '  + {country: "A", orders: 1, revenue: 1.50}',
        "  ?                        ^",
        '  - {country: "Chile", orders: 7}',
        '  - {country: "NULL", orders: 1, revenue: 1.50}',
        "  ?           ^^^^^^",
        "  + {country: null, orders: 1, revenue: 1.50}",
        "  ?           ^^^^",
    ]


def test_expected_rows_are_compared_in_the_columns_that_they_have(tmp_path: Path) -> None:
    given = {"orders": ORDERS, "customers": CUSTOMERS}
    expect = {"revenue": [{"orders": 1}, {"country": "A", "revenue": "1.50"}]}
    assert problems(tmp_path, SHOP, case(given=given, expect=expect)) == ""
    missing = problems(tmp_path, SHOP, case(given=given, expect={"revenue": [{"orders": 1}]}))
    assert missing.splitlines()[1:] == ["  + {orders: 1}"]
    assert '+ {country: "A"' in problems(tmp_path, SHOP, case(given=given, expect={"revenue": []}))


def test_rows_computed_from_changes_are_compared_with_recomputed_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = net_change

    def lossy(*given: Any) -> SourceChange:
        change = known(*given)
        return replace(change, rows=change.rows.slice(1))

    monkeypatch.setattr(incremental, "net_change", lossy)
    given = {"orders": ORDERS, "customers": CUSTOMERS}
    found = problems(tmp_path, SHOP, case(given=given))
    assert "round 1: default.revenue differs from its SELECT" in found


@pytest.mark.parametrize(
    ("rounds", "message"),
    [
        ({"given": {"orders": [{"idd": 1}]}},
         "round 1: given orders: row 1: there is no column 'idd'; did you mean 'id'?"),
        ({"given": {"orders": [{"price": "x"}]}}, "\"x\" is not of type DECIMAL(10, 2)"),
        ({"given": {"orders": [{"op": "delete", "id": 1}]}}, "gets inserts only"),
        ({"given": {"customers": [{"op": "remove", "id": 1}]}}, "there is no operation 'remove'"),
        ({"given": {"customers": [{"op": "update", "id": 1}]}}, "there is no row with id = 1"),
        ({"given": {"customers": [{"id": 1}]}}, "given: column 'name' is NOT NULL, got a null"),
        ({"given": {"revenue": [{"orders": 1}]}}, "the script computes its rows"),
        ({"given": {"order": []}}, "round 1: there is no table 'order'"),
        ({"expect": {"revenu": []}}, "round 1: there is no table 'revenu'"),
        ({"expect": {"revenue": [{"op": "delete"}]}}, "row 1: there is no column 'op'"),
        ({"expect": {"revenue": [{"orders": 1.5}]}}, "\"1.5\" is not of type BIGINT"),
        ({"expect": {"revenue": [{"revenue": 1.505}]}}, "more digits than DECIMAL(38, 2)"),
        ({"given": {"orders": [{"at": "2026-01-01 00:00:00.1234"}]}}, "digits than TIMESTAMP(3)"),
    ],
)  # fmt: skip
def test_errors_in_rows_name_their_place(tmp_path: Path, rounds: Any, message: str) -> None:
    (outcome,) = outcomes(tmp_path, SHOP, case(**rounds))
    assert outcome.result == "error"
    assert message in outcome.problems[-1]


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("CREATE TABLE t (k INT PRIMARY KEY NOT ENFORCED) WITH ('merge-engine' = 'first-row');"
         "CREATE MATERIALIZED VIEW v AS SELECT k FROM t;",
         "table t shows rows or changes only after a compaction"),
        ("CREATE TABLE t (k INT PRIMARY KEY NOT ENFORCED);"
         "ALTER TABLE t SET ('changelog-producer' = 'lookup');"
         "CREATE MATERIALIZED VIEW v AS SELECT k FROM t;",
         "table t shows rows or changes only after a compaction"),
        ("SELECT 1; CREATE VIEW v AS SELECT * FROM missing;",
         "script.sql: line 1, column 42: there is no table 'missing'"),
    ],
)  # fmt: skip
def test_errors_in_a_script_are_those_of_its_statements(
    tmp_path: Path, script: str, message: str
) -> None:
    assert message in problems(tmp_path, script, case(given={}))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tests: []", "tests: List should have at least 1 item"),
        ("tests: [{name: a, expects: {}}]",
         "tests 1 expects: there is no such key; did you mean 'expect'\\?"),
        ("tests: [{name: a, rounds: [{}, {given: [1]}]}]",
         "tests 1 rounds 2 given: Input should be a valid dictionary"),
        ("tests: [{name: a, given: {t: {}}}]", "tests 1 given t: Input should be a valid list"),
        ('tests: [{name: a, given: {t: "id, name\\n1"}}]',
         "tests 1 given t: row 1 has 1 fields, and the header 2"),
        ("tests: [{name: a, expect: {t: id}}]", "tests 1 expect t: CSV text has a header and rows"),
        ("tests: [{name: a, rounds: [{}], expect: {t: []}}]", "move 'expect' into one of them"),
        ("tests: [{given: {}}]", "tests 1 name: Field required"),
        ("tests: [{name: a, given: {}, given: {}}]", "a key is there twice"),
        ("tests: [", "is not YAML"),
    ],
)  # fmt: skip
def test_errors_in_a_file_name_their_place(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(StreamhouseError, match=message):
        outcomes(tmp_path, SHOP, text)


def test_statements_that_read_tables_run_after_the_first_round(tmp_path: Path) -> None:
    script = """
    CREATE TABLE orders (id INT, country STRING);
    CREATE TABLE sales (country STRING, n BIGINT, PRIMARY KEY (country) NOT ENFORCED) WITH (
      'merge-engine' = 'aggregation', 'fields.n.aggregate-function' = 'sum');
    INSERT INTO sales SELECT country, 1 FROM orders;
    CREATE TABLE countries (country STRING);
    INSERT INTO countries VALUES ('A'), ('B');
    MERGE INTO sales AS s USING countries AS c ON s.country = c.country
    WHEN NOT MATCHED THEN INSERT (country, n) VALUES (c.country, 0);
    CREATE TABLE later (id INT);
    CREATE MATERIALIZED VIEW most AS SELECT MAX(id) AS id FROM later;
    """
    sales = [{"country": "A", "n": 1}, {"country": "B", "n": 0}]
    rounds: list[dict[str, Any]] = [
        {"given": {"later": [{"id": 7}], "orders": [{"id": 1, "country": "A"}]},
         "expect": {"sales": sales, "most": [{"id": 7}]}, "expect_changes": {"sales": sales}},
        {"given": {"orders": [{"id": 2, "country": "B"}]},
         "expect": {"sales": [{"country": "A", "n": 1}, {"country": "B", "n": 1}]}},
    ]  # fmt: skip
    assert problems(tmp_path, script, case(rounds=rounds)) == ""


def test_values_of_all_types_and_functions_in_a_catalog(tmp_path: Path) -> None:
    (tmp_path / "doubling.py").write_text("def twice(x: int) -> int:\n    return 2 * x\n")
    script = """
    CREATE CATALOG lake WITH ('type' = 'paimon', 'warehouse' = 's3://nowhere/lake',
      's3.access-key' = '${env:STREAMHOUSE_NOT_SET}');
    USE CATALOG lake;
    CREATE DATABASE d;
    USE d;
    CREATE TEMPORARY FUNCTION twice AS 'doubling.twice' LANGUAGE PYTHON;
    CREATE TEMPORARY TABLE source (
      id INT, a ARRAY<INT>, m MAP<STRING, DOUBLE>, r ROW<x INT, y STRING>, b BYTES, f FLOAT,
      t TIME, ok BOOLEAN, z TIMESTAMP_LTZ(3), at TIMESTAMP(3), n DECIMAL(38, 18)
    ) WITH ('connector' = 'kafka', 'topic' = 's', 'format' = 'json',
      'properties.bootstrap.servers' = '${env:STREAMHOUSE_NOT_SET}');
    CREATE TABLE copy (id INT, a ARRAY<INT>, m MAP<STRING, DOUBLE>, r ROW<x INT, y STRING>,
      b BYTES, f FLOAT, t TIME, ok BOOLEAN, z TIMESTAMP_LTZ(3), at TIMESTAMP(3),
      n DECIMAL(38, 18));
    INSERT INTO copy SELECT * FROM source;
    CREATE MATERIALIZED VIEW doubled AS SELECT twice(id) AS id FROM source;
    """
    rows = """
    - {id: 1, a: [1, 2], m: {x: 0.1, y: null}, r: {x: 1, y: no}, b: aGk=, f: 0.1, t: 12:30:00,
       ok: true, z: "2026-01-01 00:00:00Z", at: 2026-01-01 00:00:01,
       n: 12345678901234567890.123456789012345678}"""
    other = rows.replace("{x: 0.1, y: null}", "{y: null, x: 0.1000000000001}")
    tests = (
        "tests:\n- name: case\n  given:\n    source: {}\n"
        "  expect:\n    copy: {}\n    doubled: [{{id: 2}}]"
    )
    assert problems(tmp_path, script, tests.format(rows, other)) == ""
    digit = problems(tmp_path, script, tests.format(rows, other.replace("5678}", "5679}")))
    assert "round 1: expect copy" in digit
    more = problems(tmp_path, script, tests.format(rows, other.replace("5678}", "56785}")))
    assert "56785 has more digits than DECIMAL(38, 18)" in more
    field = problems(tmp_path, script, tests.format(rows, other.replace("y: no}", "z: no}")))
    assert "column 'r': there is no field 'z'; known: x, y" in field


def test_rows_given_to_a_table_that_merges_are_merged(tmp_path: Path) -> None:
    script = """
    CREATE TABLE sums (k STRING PRIMARY KEY NOT ENFORCED, n BIGINT) WITH (
      'connector' = 'paimon', 'merge-engine' = 'aggregation', 'fields.n.aggregate-function' = 'sum',
      'changelog-producer' = 'full-compaction');
    CREATE MATERIALIZED VIEW totals WITH ('changelog-producer' = 'lookup') AS
    SELECT SUM(n) AS total FROM sums;
    CREATE TEMPORARY TABLE sent (total BIGINT PRIMARY KEY NOT ENFORCED, k STRING) WITH (
      'connector' = 'upsert-kafka', 'topic' = 't', 'key.format' = 'json', 'value.format' = 'json',
      'properties.bootstrap.servers' = 'nowhere:9092');
    INSERT INTO sent SELECT total, 'k' FROM totals WHERE total IS NOT NULL;
    """
    given = [{"k": "a", "n": 1}, {"k": "a", "n": 2}, {"op": "-D", "k": "a", "n": 5}]
    rounds = [
        {"given": {"sums": given[:2]}, "expect": {"sums": [{"k": "a", "n": 3}]}},
        {
            "given": {"sums": given[2:]},
            "expect": {"sums": [{"n": -2}], "totals": [{"total": -2}], "sent": [{"total": -2}]},
        },
    ]
    assert problems(tmp_path, script, case(rounds=_texts(rounds))) == ""


def test_lookups_find_the_rows_of_the_same_round_whatever_the_order_of_queries(
    tmp_path: Path,
) -> None:
    script = """
    CREATE TEMPORARY TABLE cities_in_mysql (id INT PRIMARY KEY NOT ENFORCED, name STRING) WITH (
      'connector' = 'mysql-cdc', 'hostname' = 'nowhere', 'username' = 'u', 'password' = 'p',
      'database-name' = 'd', 'table-name' = 'cities');
    CREATE TABLE cities (id INT PRIMARY KEY NOT ENFORCED, name STRING) WITH ('bucket' = '2');
    CREATE TABLE visits (city INT, seen AS PROCTIME());
    CREATE TABLE named (city STRING);
    INSERT INTO named SELECT /*+ LOOKUP('table'='c', 'strategy'='bucket') */ c.name
    FROM visits AS v JOIN cities FOR SYSTEM_TIME AS OF v.seen AS c ON v.city = c.id;
    INSERT INTO cities SELECT id, name FROM cities_in_mysql;
    """
    given = {
        "visits": [{"city": "1"}, {"city": "2"}],
        "cities_in_mysql": [{"id": "1", "name": "A"}],
    }
    more = {"visits": [{"city": "2"}], "cities_in_mysql": [{"id": "2", "name": "B"}]}
    rounds = [
        {"given": given, "expect": {"named": [{"city": "A"}]}},
        {"given": more, "expect": {"named": [{"city": "A"}, {"city": "B"}]}},
    ]
    assert problems(tmp_path, script, case(rounds=rounds)) == ""


def test_late_rows_change_no_closed_window(tmp_path: Path) -> None:
    script = """
    CREATE TABLE ticks (id INT, at TIMESTAMP(3), WATERMARK FOR at AS at);
    CREATE TABLE closed (till TIMESTAMP(3), n BIGINT);
    INSERT INTO closed SELECT window_end, COUNT(*)
    FROM TABLE(TUMBLE(TABLE ticks, DESCRIPTOR(at), INTERVAL '1' MINUTE))
    GROUP BY window_end, window_start;
    CREATE MATERIALIZED VIEW recent AS
    SELECT id FROM ticks WHERE at > CAST(CURRENT_TIMESTAMP AS TIMESTAMP(3)) - INTERVAL '1' MINUTE;
    """
    times = ["12:00:10", "12:01:10", "12:00:20", "12:02:10"]
    rounds: list[dict[str, Any]] = [
        {"given": {"ticks": [{"id": str(n), "at": f"2026-01-01 {at}"}]}}
        for n, at in enumerate(times)
    ]
    closed = [{"till": "2026-01-01 12:01:00", "n": 1}, {"till": "2026-01-01 12:02:00", "n": 1}]
    rounds[2]["expect"] = {"closed": closed[:1], "recent": [{"id": 0}, {"id": 1}, {"id": 2}]}
    rounds[3]["expect"] = {"closed": closed}
    rounds.append({"now": "2026-01-01 12:02:05", "expect": {"recent": [{"id": 1}, {"id": 3}]}})
    rounds[0]["now"] = "2026-01-01 12:00:30"
    tests = case(rounds=rounds)
    assert problems(tmp_path, script, tests) == ""


def test_the_time_is_that_of_the_case(tmp_path: Path) -> None:
    script = """
    CREATE TABLE events (id INT);
    CREATE TABLE seen (id INT, at TIMESTAMP(3));
    INSERT INTO seen SELECT id, CAST(CURRENT_TIMESTAMP AS TIMESTAMP(3)) FROM events;
    """
    rounds: list[dict[str, Any]] = [
        {"given": {"events": [{"id": 1}]}},
        {"given": {"events": [{"id": 2}]}},
        {"given": {"events": [{"id": 3}]}, "now": "2026-02-01 00:00:00"},
    ]
    seen = [
        ("1", "2026-01-01 12:00:00"),
        ("2", "2026-01-01 12:00:10"),
        ("3", "2026-02-01 00:00:00"),
    ]
    rounds[-1]["expect"] = {"seen": [{"id": number, "at": at} for number, at in seen]}
    rounds[0]["now"] = "2026-01-01T12:00:00Z"
    tests = case(rounds=rounds)
    assert problems(tmp_path, script, tests) == ""


def test_the_command_prints_results_and_exits_with_them(tmp_path: Path) -> None:
    good = {"name": "good", "expect": {"revenue": []}}
    bad = {"name": "bad", "expect": {"revenue": [{"orders": 1}]}}
    (tmp_path / "shop.sql").write_text(SHOP)
    file = tmp_path / "shop.yml"
    file.write_text(json.dumps({"tests": [good, bad]}))

    def run(*arguments: str) -> Any:
        given = ["test", str(tmp_path / "shop.sql"), str(file), *arguments]
        return CliRunner().invoke(build(given), given)

    result = run()
    assert result.exit_code == 1
    assert f"passed: {file}: good" in result.stdout and f"failed: {file}: bad" in result.stdout
    assert "1 failed, 1 passed in" in result.stdout
    assert run("-k", "GOO").exit_code == 0
    none = run("-k", "other")
    assert none.exit_code == 2 and "no test case has 'other' in its name" in none.stderr
    records = [json.loads(line) for line in run("--json").stdout.splitlines()]
    assert [record["result"] for record in records] == ["passed", "failed"]
    assert records[1]["problems"][0].startswith("round 1: expect revenue")
    file.write_text("tests: [{name: a, given: {nothing: []}}]")
    assert run().exit_code == 2


def test_pytest_collects_cases(tmp_path: Path) -> None:
    expect = {"revenue": [{"orders": 3}]}
    outcomes(
        tmp_path,
        SHOP,
        json.dumps({"tests": [{"name": "good"}, {"name": "bad", "expect": expect}]})[1:-1],
    )
    (tmp_path / "test_other.yml").write_text("unrelated: true")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    done = subprocess.run([*command, tmp_path], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "round 1: expect revenue (- expected, + actual)" in done.stdout
    assert "test_script.yml::bad" in done.stdout and "1 failed, 1 passed" in done.stdout
