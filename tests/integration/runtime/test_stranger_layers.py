"""Four layers over an out-of-order log, with Chinese names, DATE partitions and nulls.

The log is what a message queue would have held: orders are corrected, cancelled and late in it.
Refunds are updated and deleted. One script fills all layers, changes what they read, and goes on.
"""

from __future__ import annotations

import datetime
import random
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from tests.integration.runtime.conftest import Shop

SCRIPT = """
SET 'pipeline.name' = '会员数仓';
SET 'execution.checkpointing.interval' = '10 s';
USE CATALOG default_catalog;
CREATE DATABASE IF NOT EXISTS ods;
CREATE DATABASE IF NOT EXISTS dim; CREATE DATABASE IF NOT EXISTS dw;

/* 原始日志 */
CREATE TABLE ods.order_log (
  seq BIGINT, id BIGINT, member_id BIGINT, agent STRING, product_id INT, `省` STRING, `市` STRING,
  kind STRING COMMENT '类型; 新购, 续费', amount DECIMAL(12, 2), status STRING, order_day DATE,
  event_time TIMESTAMP(3), extra STRING,
  WATERMARK FOR event_time AS event_time - INTERVAL '5' SECOND
) COMMENT '订单日志' WITH ('bucket' = '-1');
CREATE TABLE ods.refund (id BIGINT PRIMARY KEY NOT ENFORCED, money DOUBLE, why STRING)
  WITH ('bucket' = '2');
CREATE TABLE ods.ods_order (
  v_date DATE, id BIGINT, seq BIGINT, member_id BIGINT, agent STRING, product_id INT, `省` STRING,
  `市` STRING, kind STRING, amount DECIMAL(12, 2), status STRING, channel STRING,
  event_time TIMESTAMP(3), proc AS PROCTIME(),
  PRIMARY KEY (v_date, id) NOT ENFORCED
) PARTITIONED BY (v_date) WITH (
  'bucket' = '4', 'merge-engine' = 'deduplicate', 'sequence.field' = 'event_time,seq',
  'changelog-producer' = 'lookup', 'deletion-vectors.enabled' = 'true'
);
CREATE TABLE dim.product (id INT PRIMARY KEY NOT ENFORCED, `名称` STRING, points DECIMAL(6, 3))
  WITH ('bucket' = '1');
CREATE TABLE dim.agent (agent STRING PRIMARY KEY NOT ENFORCED, team STRING, active BOOLEAN)
  WITH ('bucket' = '2');
CREATE TABLE dim.city (`省` STRING, `市` STRING, region STRING,
  PRIMARY KEY (`省`, `市`) NOT ENFORCED) WITH ('bucket' = '3');
CREATE TABLE dw.dwd_order (
  v_date DATE, id BIGINT, v_month STRING, member_id BIGINT, kind STRING, agent STRING, team STRING,
  product STRING, region STRING, amount DECIMAL(12, 2), score DECIMAL(20, 4), channel STRING,
  PRIMARY KEY (v_date, id) NOT ENFORCED
) PARTITIONED BY (v_date) WITH ('bucket' = '2');
CREATE TABLE dw.dws_agent_score (
  v_date STRING, agent STRING, orders BIGINT, score DECIMAL(20, 4), update_time TIMESTAMP(3),
  PRIMARY KEY (v_date, agent) NOT ENFORCED
) PARTITIONED BY (v_date) WITH (
  'bucket' = '1', 'merge-engine' = 'aggregation', 'fields.orders.aggregate-function' = 'sum',
  'fields.score.aggregate-function' = 'sum',
  'fields.update_time.aggregate-function' = 'last_non_null_value'
);
CREATE TABLE dw.dws_member_month (
  v_month STRING PRIMARY KEY NOT ENFORCED, members BIGINT, new_members BIGINT, renewed BIGINT,
  amount DECIMAL(20, 2)
) WITH ('bucket' = '1', 'merge-engine' = 'aggregation',
  'fields.default-aggregate-function' = 'sum');
CREATE TABLE dw.app_flow (
  name STRING, n BIGINT, money DECIMAL(20, 2), board STRING, PRIMARY KEY (board, name) NOT ENFORCED
) PARTITIONED BY (board) WITH ('bucket' = '1', 'merge-engine' = 'aggregation',
  'fields.default-aggregate-function' = 'sum');

INSERT INTO dim.product VALUES (1, '月卡', 1.005), (2, '年卡', 2.5), (3, '家庭; 卡', 0.333);
INSERT INTO dim.agent VALUES ('张三', '北组', TRUE), ('李四', '南组', FALSE),
  ('O''Hara', NULL, TRUE);
INSERT INTO dim.city VALUES ('浙江', '杭州', '华东'), ('江苏', '南京', '华东'),
  ('四川', '成都', NULL);
INSERT INTO ods.order_log VALUES {first};
INSERT INTO ods.refund VALUES (1, 9.99, '退货'), (2, 20.005, NULL), (3, 0.1, '其他');

INSERT INTO ods.ods_order
SELECT order_day, id, seq, member_id, NULLIF(TRIM(agent), ''), product_id, `省`, `市`, kind, amount,
  status, JSON_VALUE(extra, '$.渠道'), event_time
FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY order_day, id ORDER BY event_time DESC, seq DESC) AS rn
  FROM ods.order_log
) WHERE rn = 1;

BEGIN STATEMENT SET;
INSERT INTO dw.dwd_order
SELECT /*+ LOOKUP('table'='p', 'strategy'='full'), LOOKUP('table'='c', 'shuffle'='true') */
  o.v_date, o.id, DATE_FORMAT(o.v_date, 'yyyy-MM'), o.member_id,
  CASE o.kind WHEN '新购' THEN 'new' WHEN '续费' THEN 'renew' ELSE NVL(o.kind, '未知') END,
  o.agent, a.team, p.`名称`, c.region, o.amount, o.amount * COALESCE(p.points, 1), o.channel
FROM (SELECT * FROM ods.ods_order WHERE status <> '取消') AS o
LEFT JOIN dim.product FOR SYSTEM_TIME AS OF o.proc AS p ON o.product_id = p.id
LEFT JOIN dim.agent FOR SYSTEM_TIME AS OF o.proc AS a ON a.agent = o.agent AND a.active
LEFT JOIN dim.city FOR SYSTEM_TIME AS OF PROCTIME() AS c
  ON c.`市` = o.`市` AND c.`省` = SUBSTRING(o.`省`, 0, 2);

INSERT INTO dw.dws_agent_score
SELECT CAST(v_date AS STRING), COALESCE(agent, '无'), COUNT(*), SUM(score), NOW()
FROM dw.dwd_order GROUP BY v_date, agent;

INSERT INTO dw.dws_member_month
SELECT v_month, COUNT(DISTINCT member_id), COUNT(DISTINCT IF(kind = 'new', member_id, NULL)),
  COUNT(DISTINCT member_id) FILTER (WHERE kind = 'renew'), SUM(amount)
FROM dw.dwd_order GROUP BY v_month;

INSERT INTO dw.app_flow PARTITION (board = '金额')
SELECT name, SUM(n), SUM(money) FROM (
  SELECT IFNULL(region, '未知') AS name, 1 AS n, amount AS money FROM dw.dwd_order
  UNION ALL
  SELECT '退款' || IFNULL(why, ''), 1, CAST(-money AS DECIMAL(12, 2)) FROM ods.refund
  UNION ALL
  SELECT '原始', 1, amount FROM ods.order_log WHERE amount > 0
) AS u GROUP BY name;
END;

-- 之后的变化
SET 'execution.runtime-mode' = 'batch';
INSERT INTO ods.order_log VALUES {second};
MERGE INTO ods.refund AS r
USING (VALUES (1, 0, '删除'), (2, 21.005, '其他'), (3, 0.25, '退货'), (4, 7, '退货'))
  AS c (id, money, why) ON r.id = c.id
WHEN MATCHED AND c.why = '删除' THEN DELETE
WHEN MATCHED THEN UPDATE SET money = c.money, why = c.why
WHEN NOT MATCHED THEN INSERT (id, money, why) VALUES (c.id, c.money, c.why);
"""
REFUNDS = [(2, 21.005, "其他"), (3, 0.25, "退货"), (4, 7.0, "退货")]
COLUMNS = (
    "seq BIGINT, id BIGINT, member_id BIGINT, agent VARCHAR, product_id INTEGER, 省 VARCHAR, "
    "市 VARCHAR, kind VARCHAR, amount DECIMAL(12, 2), status VARCHAR, order_day DATE, "
    "event_time TIMESTAMP_MS, extra VARCHAR"
)
LIVE = """
CREATE TABLE newest AS FROM log QUALIFY row_number() OVER (
  PARTITION BY order_day, id ORDER BY event_time DESC, seq DESC) = 1;
CREATE TABLE live AS
SELECT n.order_day AS v_date, n.id, strftime(n.order_day, '%Y-%m') AS v_month, n.member_id,
  CASE n.kind WHEN '新购' THEN 'new' WHEN '续费' THEN 'renew'
    ELSE coalesce(n.kind, '未知') END AS kind,
  nullif(trim(n.agent), '') AS agent, a.team, p.name AS product, c.region, n.amount,
  CAST(n.amount * coalesce(p.points, 1) AS DECIMAL(20, 4)) AS score, n.extra ->> '$.渠道' AS channel
FROM newest AS n
LEFT JOIN (VALUES (1, '月卡', 1.005), (2, '年卡', 2.5), (3, '家庭; 卡', 0.333))
  AS p (id, name, points) ON p.id = n.product_id
LEFT JOIN (VALUES ('张三', '北组'), ('O''Hara', NULL)) AS a (agent, team) ON a.agent = trim(n.agent)
LEFT JOIN (VALUES ('浙江', '杭州', '华东'), ('江苏', '南京', '华东'), ('四川', '成都', NULL))
  AS c (province, city, region) ON (c.province, c.city) = (left(n.省, 2), n.市)
WHERE n.status <> '取消';
"""
EXPECTED = {
    "ods.ods_order": """
        SELECT order_day, id, seq, member_id, nullif(trim(agent), ''), product_id, 省, 市, kind,
          amount, status, extra ->> '$.渠道', event_time FROM newest""",
    "dw.dwd_order": "FROM live",
    "dw.dws_agent_score": """
        SELECT strftime(v_date, '%Y-%m-%d'), coalesce(agent, '无'), count(*),
          coalesce(sum(score), 0), true
        FROM live GROUP BY v_date, agent""",
    "dw.dws_member_month": """
        SELECT v_month, count(DISTINCT member_id),
          count(DISTINCT member_id) FILTER (WHERE kind = 'new'),
          count(DISTINCT member_id) FILTER (WHERE kind = 'renew'), coalesce(sum(amount), 0)
        FROM live GROUP BY v_month""",
    "dw.app_flow": """
        SELECT name, count(*), coalesce(sum(money), 0), '金额' FROM (
          SELECT coalesce(region, '未知') AS name, amount AS money FROM live UNION ALL
          SELECT '退款' || coalesce(why, ''), CAST(-money AS DECIMAL(12, 2)) FROM refund UNION ALL
          SELECT '原始', amount FROM log WHERE amount > 0) GROUP BY name""",
}
SHOWN = {
    "dw.dws_agent_score": "SELECT v_date, agent, orders, coalesce(score, 0), "
    "update_time IS NOT NULL FROM found "
    "WHERE orders <> 0",
    "dw.dws_member_month": "SELECT * REPLACE (coalesce(amount, 0) AS amount) FROM found",
    "dw.app_flow": "SELECT * REPLACE (coalesce(money, 0) AS money) FROM found WHERE n <> 0",
}
"""Groups whose rows are all gone stay, with 0, which also is what is left of a sum of nulls."""


def log(count: int) -> list[tuple[Any, ...]]:
    """Events of few orders, of any time and in any order; much may be null."""
    pick = random.Random(20260501)

    def some(*values: Any) -> Any:
        return pick.choice(values)

    rows: list[tuple[Any, ...]] = []
    for seq in range(count):
        number = pick.randrange(40)
        day = datetime.date(2026, 4, 29) + datetime.timedelta(days=number % 4)
        at = datetime.datetime(2026, 5, 1) + datetime.timedelta(milliseconds=pick.randrange(20_000))
        rows.append(
            (
                seq, number, some(None, *range(8)),
                some("张三", "李四", " O'Hara ", "", "赵六", None),
                some(1, 2, 3, 9, None), some("浙江省", "江苏省", "四川省", "西藏", None),
                some("杭州", "南京", "成都", None), some("新购", "续费", "赠送", None),
                some(None, *(Decimal(n).scaleb(-2) for n in (0, 1, 9_999, 1_234_567))),
                some("有效", "有效", "有效", "取消", None), day, at,
                some(None, "{}", '{"渠道": "小程序"}', '{"渠道": ["x"]}', "not json"),
            )
        )  # fmt: skip
    return rows


def values(rows: list[tuple[Any, ...]]) -> str:
    """The rows as VALUES of a script."""

    def one(value: Any) -> str:
        match value:
            case None:
                return "NULL"
            case str():
                return "'" + value.replace("'", "''") + "'"
            case datetime.datetime():
                return f"TIMESTAMP '{value}'"
            case datetime.date():
                return f"DATE '{value}'"
        return str(value)

    return ", ".join(f"({', '.join(map(one, row))})" for row in rows)


@pytest.fixture(scope="module")
def layers(
    spark_here: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Shop, Any]]:
    """The warehouse after the script, and DuckDB with what is true of it."""
    shop = Shop(tmp_path_factory.mktemp("layers"))
    rows = log(400)
    text = SCRIPT
    for name, part in (("first", rows[:200]), ("second", rows[200:])):
        text = text.replace(f"{{{name}}}", values(part))
    shop.settle_here(text)
    with duckdb.connect(":memory:") as truth:
        truth.execute(f"CREATE TABLE log ({COLUMNS})")
        truth.executemany(f"INSERT INTO log VALUES ({', '.join('?' * 13)})", rows)
        truth.execute("CREATE TABLE refund (id BIGINT, money DOUBLE, why VARCHAR)")
        truth.executemany("INSERT INTO refund VALUES (?, ?, ?)", REFUNDS)
        truth.execute("UPDATE log SET extra = NULL WHERE NOT json_valid(extra)")
        truth.execute("UPDATE log SET extra = NULL WHERE extra LIKE '%[%'")
        truth.execute(LIVE)
        yield shop, truth


@pytest.mark.parametrize("table", EXPECTED)
def test_each_layer_equals_plain_sql(layers: tuple[Shop, Any], table: str) -> None:
    shop, truth = layers
    opened = shop.warehouse.table(table)
    found = pa.Table.from_batches(list(opened.read()), opened.arrow_schema)
    assert found.num_rows > 1
    truth.register("found", found)
    displayed, expected = SHOWN.get(table, "FROM found"), EXPECTED[table]
    left = truth.execute(
        f"(SELECT 'missing', * FROM (({expected}) EXCEPT ALL ({displayed}))) UNION ALL "
        f"(SELECT 'wrong', * FROM (({displayed}) EXCEPT ALL ({expected}))) LIMIT 20"
    ).fetchall()
    assert left == []


def test_a_day_is_read_by_its_date(layers: tuple[Shop, Any]) -> None:
    shop, truth = layers
    output = shop.printed(
        "SET 'execution.runtime-mode' = 'batch'; SELECT COUNT(*) FROM ods.ods_order "
        "WHERE v_date BETWEEN '2026-04-30' AND DATE '2026-05-01'"
    )
    count = "SELECT count(*) FROM newest WHERE order_day BETWEEN '2026-04-30' AND '2026-05-01'"
    assert output == str(truth.execute(count).fetchone()[0])


def test_partitions_have_the_names_that_others_expect(layers: tuple[Shop, Any]) -> None:
    shop, _ = layers
    boards = [path.name for path in Path(shop.path, "dw.db", "app_flow").glob("board=*")]
    assert boards == ["board=金额"]
