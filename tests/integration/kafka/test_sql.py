"""SQL scripts over a real broker: sources, sinks, upserts, and interruptions."""

from __future__ import annotations

import json

import pytest
from tests.integration.kafka.conftest import Topic
from tests.integration.kafka.test_sink import values
from tests.integration.kafka.test_source import NOW
from tests.integration.runtime.conftest import Dying, Shop, dying, shop

from streamhouse.errors import OptionError, UnsupportedSqlError
from streamhouse.runtime.replay_requests import request_replay
from streamhouse.runtime.streaming.query import QueryFailed

pytestmark = pytest.mark.usefixtures("in_threads")

__all__ = ["dying", "shop"]


def order(number: int) -> str:
    return json.dumps({"id": number, "country": f"c{number % 3}", "price": number / 4})


def source(topic: Topic, **more: str) -> str:
    options = {
        "connector": "kafka", "topic": topic.name, "format": "json",
        "properties.bootstrap.servers": topic.broker.servers,
        "scan.startup.mode": "earliest-offset", **more,
    }  # fmt: skip
    listed = ", ".join(f"'{key}' = '{value}'" for key, value in options.items())
    return (
        "CREATE TEMPORARY TABLE incoming (id BIGINT, country STRING, price DECIMAL(10, 2)) "
        f"WITH ({listed});\n"
    )


ORDERS = "CREATE TABLE IF NOT EXISTS orders (id BIGINT, country STRING, price DECIMAL(10, 2));\n"
COPY = "INSERT INTO orders SELECT id, country, price FROM incoming;\n"


def sink(topic: Topic, *more: str) -> str:
    listed = "".join(f", {one}" for one in more)
    return (
        "CREATE TEMPORARY TABLE outgoing (id BIGINT, country STRING) WITH ('connector' = 'kafka', "
        f"'topic' = '{topic.name}', 'properties.bootstrap.servers' = '{topic.broker.servers}', "
        f"'format' = 'json'{listed});\n"
    )


ONCE = ("'sink.delivery-guarantee' = 'exactly-once'", "'sink.transactional-id-prefix' = 'shop'")


def ids(shop: Shop, table: str = "orders") -> list[int]:
    return [row["id"] for row in shop.rows(table)]


def test_orders_reach_a_table_once_although_the_driver_dies(
    shop: Shop, dying: Dying, topic: Topic
) -> None:
    script = source(topic) + ORDERS + COPY
    topic.send(*(order(number) for number in range(10)))
    with dying(script, "batch-written:1:default.orders") as until:
        until(lambda: len(shop.rows("orders") if _exists(shop, "orders") else ()) == 10)
        topic.send(*(order(number) for number in range(10, 20)), partition=1)
    shop.settle_here(script)
    assert sorted(ids(shop)) == list(range(20))
    topic.send(order(20))
    assert "21" in shop.printed(f"SET 'execution.runtime-mode' = 'batch';\n{source(topic)}"
                             "SELECT COUNT(*) FROM incoming;")  # fmt: skip


def _exists(shop: Shop, table: str) -> bool:
    warehouse = shop.warehouse
    return "default" in warehouse.databases() and table in warehouse.tables("default")


@pytest.mark.parametrize("point", ["batch-written", "target-committed"])
def test_rows_reach_a_topic_once_although_the_driver_dies(
    shop: Shop, dying: Dying, topic: Topic, point: str
) -> None:
    target = Topic(topic.broker, topic.name)
    script = (
        "CREATE TABLE IF NOT EXISTS numbers (id BIGINT, country STRING);\n"
        + sink(target, *ONCE)
        + "INSERT INTO outgoing SELECT id, country FROM numbers;\n"
    )
    shop.do("CREATE TABLE numbers (id BIGINT, country STRING); INSERT INTO numbers VALUES (1, 'a')")
    with dying(script, f"{point}:1:default.outgoing$kafka") as until:
        until(lambda: len(values(target)) == 1)
        shop.do("INSERT INTO numbers VALUES (2, 'b'), (3, 'c')")
    shop.settle_here(script)
    found = sorted(json.loads(value)["id"] for _, _, value in values(target))
    assert found == [1, 2, 3]


@pytest.mark.parametrize(("mode", "count"), [
    ("", 30_000), pytest.param("allow_unordered", 30_000, marks=pytest.mark.soak),
    ("ordered", 30_000), ("ordered", 10),
])  # fmt: skip
def test_joined_rows_reach_a_topic_by_any_way_to_the_driver(
    shop: Shop, topic: Topic, mode: str, count: int
) -> None:
    target = Topic(topic.broker, topic.name)
    hint = shuffled = ""
    if mode:
        hint = f"/*+ LOOKUP('table'='p', 'strategy'='bucket', 'output-mode'='{mode}') */"
        # One task joins the rows of a small batch.
        shuffled = f"/*+ OPTIONS('lookup.bucket.shuffle-min-rows'='{20 if count == 10 else 0}') */"
    made = (
        "CREATE TABLE IF NOT EXISTS clicks (id BIGINT, at AS PROCTIME()) WITH ('bucket' = '-1');\n"
        "CREATE TABLE IF NOT EXISTS people (id BIGINT, country STRING, PRIMARY KEY (id) NOT "
        "ENFORCED) WITH ('bucket' = '3');\n"
    )
    shop.do(
        f"{made}CREATE TEMPORARY TABLE made (id BIGINT) WITH ('connector' = 'datagen', "
        f"'number-of-rows' = '{count}', 'fields.id.kind' = 'sequence', 'fields.id.start' = '0', "
        f"'fields.id.end' = '{count - 1}');\n"
        "INSERT INTO clicks SELECT id FROM made;\n"
        "INSERT INTO people SELECT id, CONCAT('country ', CAST(id AS STRING)) FROM made;"
    )
    shop.settle_here(
        f"{made}{sink(target, *ONCE)}SET 'parallelism.default' = '2';\n"
        f"INSERT INTO outgoing SELECT {hint} c.id, p.country "
        f"FROM clicks AS c JOIN people {shuffled} FOR SYSTEM_TIME AS OF c.at AS p "
        "ON c.id = p.id;"
    )
    found = [json.loads(value) for _, _, value in values(target)]
    expected = [{"id": number, "country": f"country {number}"} for number in range(count)]
    assert sorted(found, key=lambda row: row["id"]) == expected


def test_a_bounded_insert_is_one_transaction_and_plans_say_the_guarantee(
    shop: Shop, topic: Topic
) -> None:
    script = sink(topic, *ONCE) + "INSERT INTO outgoing VALUES (1, 'a'), (2, 'b');"
    shop.printed(f"SET 'execution.runtime-mode' = 'batch';\n{script}")
    assert sorted(json.loads(one)["id"] for _, _, one in values(topic)) == [1, 2]
    read = ORDERS + sink(topic, *ONCE)
    output = shop.printed(read + "EXPLAIN INSERT INTO outgoing SELECT id, country FROM orders;")
    assert "exactly-once: one transaction for each micro-batch" in output
    plain = ORDERS + sink(topic)
    output = shop.printed(plain + "EXPLAIN INSERT INTO outgoing SELECT id, country FROM orders;")
    assert "at-least-once" in output
    keyed = (
        "CREATE TABLE IF NOT EXISTS people (id BIGINT, country STRING, PRIMARY KEY (id) NOT "
        "ENFORCED) WITH ('bucket' = '1');\n"
    )
    with pytest.raises(UnsupportedSqlError, match="use 'connector' = 'upsert-kafka'"):
        shop.settle_here(
            keyed + sink(topic) + "INSERT INTO outgoing SELECT id, country FROM people;"
        )


def upserts(topic: Topic) -> str:
    return (
        "CREATE TEMPORARY TABLE latest (id BIGINT, country STRING, PRIMARY KEY (id) NOT ENFORCED) "
        f"WITH ('connector' = 'upsert-kafka', 'topic' = '{topic.name}', 'key.format' = 'json', "
        f"'properties.bootstrap.servers' = '{topic.broker.servers}', 'value.format' = 'json');\n"
    )


def test_a_key_may_move_to_another_row_within_a_batch(shop: Shop, topic: Topic) -> None:
    tables = (
        "CREATE TABLE IF NOT EXISTS people (n INT, id BIGINT, country STRING, PRIMARY KEY (n) NOT "
        "ENFORCED) WITH ('bucket' = '1', 'changelog-producer' = 'input');\n"
    )
    script = tables + upserts(topic) + "INSERT INTO latest SELECT id, country FROM people;"
    shop.do(f"{tables} INSERT INTO people VALUES (1, 10, 'Kenya'), (2, 20, 'China');")
    shop.settle_here(script)
    shop.do(
        "MERGE INTO people USING (SELECT n, 30 - id AS other FROM people) AS p "
        "ON people.n = p.n WHEN MATCHED THEN UPDATE SET id = p.other"
    )
    shop.settle_here(script)
    last = {key: value for _, key, value in values(topic)}
    found = sorted((json.loads(one)["id"], json.loads(one)["country"]) for one in last.values())
    assert found == [(10, "China"), (20, "Kenya")]


def test_hints_apply_to_a_bounded_select(shop: Shop, topic: Topic) -> None:
    topic.send(*(order(number) for number in range(5)))
    table = "SET 'execution.runtime-mode' = 'batch';\n" + source(topic)

    def read(hint: str) -> str:
        return shop.printed(f"{table}SELECT COUNT(*) AS n FROM incoming /*+ OPTIONS({hint}) */;")

    start = "'scan.startup.mode' = 'specific-offsets', 'scan.startup.specific-offsets'"
    assert "2" in read(f"{start} = 'partition:0,offset:3'")
    assert "4" in read(
        "'scan.bounded.mode' = 'specific-offsets', "
        "'scan.bounded.specific-offsets' = 'partition:0,offset:4'"
    )
    with pytest.raises(OptionError, match="unknown option 'scan.startup.mod'; did you mean"):
        read("'scan.startup.mod' = 'latest-offset'")


def test_a_topic_by_key_becomes_a_table_and_its_changes_are_whole(shop: Shop, topic: Topic) -> None:
    def send(number: int, country: str | None) -> None:
        value = None if country is None else json.dumps({"id": number, "country": country})
        topic.send(value, key=json.dumps({"id": number}).encode())

    script = (
        upserts(topic)
        + """
CREATE TABLE IF NOT EXISTS people (id BIGINT, country STRING, PRIMARY KEY (id) NOT ENFORCED)
  WITH ('bucket' = '1');
CREATE TABLE IF NOT EXISTS counts (country STRING, n BIGINT, PRIMARY KEY (country) NOT ENFORCED)
  WITH ('bucket' = '1', 'merge-engine' = 'aggregation', 'fields.n.aggregate-function' = 'sum');
INSERT INTO people SELECT id, country FROM latest;
INSERT INTO counts SELECT country, COUNT(*) FROM people GROUP BY country;
"""
    )
    send(1, "a")
    send(2, "a")
    send(1, "b")
    shop.settle_here(script)
    assert shop.rows("people") == [{"id": 1, "country": "b"}, {"id": 2, "country": "a"}]
    send(2, None)
    send(3, "b")
    send(4, "x")
    send(4, None)
    shop.settle_here(script)
    assert shop.rows("people") == [{"id": 1, "country": "b"}, {"id": 3, "country": "b"}]
    counts = {row["country"]: row["n"] for row in shop.rows("counts") if row["n"]}
    assert counts == {"b": 2}
    output = shop.printed(
        f"SET 'execution.runtime-mode' = 'batch';\n{upserts(topic)}SELECT * FROM latest;"
    )
    assert sorted(output.splitlines()) == ["1  b", "3  b"]


def test_changes_of_debezium_keep_a_sum_correct(shop: Shop, topic: Topic) -> None:
    topic.send(
        '{"op": "c", "after": {"id": 1, "country": "a", "price": 2}}',
        '{"op": "c", "after": {"id": 2, "country": "a", "price": 3}}',
        '{"op": "u", "before": {"id": 1, "country": "a", "price": 2},'
        ' "after": {"id": 1, "country": "b", "price": 5}}',
        '{"op": "d", "before": {"id": 2, "country": "a", "price": 3}}',
    )
    script = source(topic, format="debezium-json") + (
        "CREATE TABLE IF NOT EXISTS sums (country STRING, price DECIMAL(38, 2), PRIMARY KEY "
        "(country) NOT ENFORCED) WITH ('bucket' = '1', 'merge-engine' = 'aggregation', "
        "'fields.price.aggregate-function' = 'sum');\n"
        "INSERT INTO sums SELECT country, SUM(price) FROM incoming GROUP BY country;"
    )
    shop.settle_here(script)
    found = {row["country"]: row["price"] for row in shop.rows("sums")}
    assert found["b"] == 5 and not found.get("a")


def test_a_bad_record_ends_the_query_and_names_its_place(shop: Shop, topic: Topic) -> None:
    topic.send(order(1), '{"id": "x"}')
    place = f"topic {topic.name}, partition 0, offset 1: column 'id'"
    with pytest.raises(QueryFailed, match=place):
        shop.settle_here(source(topic) + ORDERS + COPY)


def test_bad_records_are_counted_or_kept_once_although_the_driver_dies(
    shop: Shop, dying: Dying, topic: Topic
) -> None:
    keep = {"bad-records": "table", "bad-records.table": "late.bad"}
    script = source(topic, **keep) + ORDERS + COPY
    topic.send(order(1), '{"id": "x"}', "no json")
    with dying(script, "target-committed:1:default.orders") as until:
        until(lambda: _exists(shop, "orders") and ids(shop) == [1])
        topic.send(order(2), b"\xff", key=b"k")
    shop.settle_here(script)
    assert ids(shop) == [1, 2]
    table = shop.warehouse.table("late.bad")
    kept = [row for batch in table.read() for row in batch.to_pylist()]
    found = sorted((row["position"].rpartition(" ")[2], row["value"], row["key"]) for row in kept)
    assert found == [
        ("1", b'{"id": "x"}', None), ("2", b"no json", None), ("4", b"\xff", b"k"),
    ]  # fmt: skip
    assert {row["source"] for row in kept} == {"default.incoming"}
    assert any(row["reason"] == "column 'id': \"x\" is not of type BIGINT" for row in kept)


def test_skipped_records_are_counted(shop: Shop, topic: Topic) -> None:
    topic.send(order(1), "no json", order(2))
    shop.settle(source(topic, **{"bad-records": "skip"}) + ORDERS + COPY, spark=False)
    assert ids(shop) == [1, 2]
    status = next(shop.path.rglob("status.json"), None)
    assert status is not None
    (query,) = json.loads(status.read_text())["queries"]
    assert query["bad_records"] == 1


def test_bad_records_are_replayed_once_after_the_script_was_mended(
    shop: Shop, topic: Topic
) -> None:
    keep = {"bad-records": "table", "bad-records.table": "late.bad"}
    wrong = source(topic, **keep) + ORDERS + COPY
    topic.send(order(1), '{"id": 2, "country": "b", "price": "free"}', "no json", timestamp=NOW)
    shop.settle_here(wrong)
    assert ids(shop) == [1]
    mended = wrong.replace("price DECIMAL(10, 2)) WITH ('con", "price STRING) WITH ('con")
    number = "TRY_CAST(price AS DECIMAL(10, 2))"
    mended = mended.replace("SELECT id, country, price", f"SELECT id, country, {number}")
    assert sum(request_replay(shop.warehouse.options, "late.bad").values()) == 2
    assert request_replay(shop.warehouse.options, "late.bad") == {}
    topic.send(order(3))
    shop.settle_here(mended)
    assert ids(shop) == [1, 2, 3]
    # What is still bad is kept again, and can be replayed again.
    table = shop.warehouse.table("late.bad")
    kept = [row for batch in table.read() for row in batch.to_pylist()]
    assert [row["value"] for row in kept].count(b"no json") == 2
    assert sum(request_replay(shop.warehouse.options, "late.bad").values()) == 1
    shop.settle_here(mended)
    assert ids(shop) == [1, 2, 3]
