"""A membership warehouse by another author's script, compared with plain SQL.

The scripts are written as for Flink and Paimon: other names and spellings, settings of a cluster,
a catalog of their own, statement sets. They run, the shops go on, they run again; then each table
is what DuckDB computes from the truth, and what Paimon's Java core reads.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from tests.integration.runtime.conftest import CollectedOutput, Run
from tests.integration.runtime.contracts import Business
from tests.java_reads import java_rows

from streamhouse.demo.mariadb import PASSWORD, USER, MariaDB
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.java.sidecar import Sidecar
from streamhouse.runtime.script import ScriptOptions, ScriptRunner
from streamhouse.sql.statements.script import parse_script

HEAD = """
-- Submitted with: sql-client.sh -f crm.sql
SET 'pipeline.name' = 'crm 2 lake';
SET execution.checkpointing.interval = 10s;
SET 'execution.checkpointing.mode' = 'EXACTLY_ONCE';
SET 'state.backend.type' = 'rocksdb';
SET 'table.exec.state.ttl' = '36 h';
SET 'table.exec.sink.upsert-materialize' = 'NONE';
SET 'table.exec.resource.default-parallelism' = '2';

CREATE CATALOG lake WITH ('type' = 'paimon', 'warehouse' = 'file:{warehouse}');
USE CATALOG lake;
CREATE DATABASE IF NOT EXISTS `dw`;
USE `dw`;
"""
SOURCES = """
create temporary table contract_src (
  `touched_at` timestamp(3),
  `contract_no` bigint not null comment 'number, of the shop',
  vendor varchar(3), tariff_code smallint, `seller` int, buyer bigint, zone string,
  paid decimal(12, 2), `action` string, state tinyint, trial boolean, signed_at timestamp(3),
  constraint pk primary key (contract_no) not enforced
) with (
  'connector' = 'mysql-cdc', 'hostname' = '127.0.0.1', 'port' = '{port}', 'username' = '{user}',
  'password' = '{password}', 'database-name' = 'crm', 'table-name' = 'contract',
  'server-time-zone' = 'UTC', 'scan.incremental.snapshot.chunk.size' = '64'
);
CREATE TEMPORARY TABLE app_src (
  uid BIGINT, `user` BIGINT, seller INT, vendor STRING, code STRING, zone STRING, renewal INT,
  cents INT, state INT, signed_text STRING, touched_ms BIGINT,
  signed_at AS TO_TIMESTAMP(signed_text, 'yyyy-MM-dd HH:mm:ss'),
  PRIMARY KEY (uid) NOT ENFORCED
) WITH (
  'connector' = 'mysql-cdc', 'hostname' = '127.0.0.1', 'port' = '{port}', 'username' = '{user}',
  'password' = '{password}', 'database-name' = 'crm', 'table-name' = 'contract_app'
);
CREATE TEMPORARY TABLE seller_src (
  id INT, home STRING, grade SMALLINT, squad STRING, name STRING, PRIMARY KEY (id) NOT ENFORCED
) WITH (
  'connector' = 'mysql-cdc', 'hostname' = '127.0.0.1', 'port' = '{port}', 'username' = '{user}',
  'password' = '{password}', 'database-name' = 'crm', 'table-name' = 'seller'
);
CREATE TEMPORARY TABLE seller_now (grade SMALLINT, name STRING, id INT) WITH (
  'connector' = 'jdbc', 'url' = 'jdbc:mysql://127.0.0.1:{port}/crm?useSSL=false',
  'driver' = 'com.mysql.cj.jdbc.Driver', 'table-name' = 'seller', 'username' = '{user}',
  'password' = '{password}', 'lookup.cache.max-rows' = '1000', 'lookup.cache.ttl' = '10 min'
);
CREATE TEMPORARY TABLE tariff_now (weight DECIMAL(6, 3), label STRING, vendor STRING, code SMALLINT)
WITH (
  'connector' = 'jdbc', 'url' = 'jdbc:mariadb://127.0.0.1:{port}/crm', 'table-name' = 'tariff',
  'username' = '{user}', 'password' = '{password}'
);
"""
TABLES = """
CREATE TABLE IF NOT EXISTS ods_contract (
  source STRING, contract_no BIGINT, buyer BIGINT NOT NULL, seller INT, vendor STRING,
  tariff_code SMALLINT, zone STRING, `action` STRING, paid DECIMAL(14, 4), state INT,
  trial BOOLEAN, signed_at TIMESTAMP(3), touched_at TIMESTAMP(3), dt STRING,
  proc AS PROCTIME(),
  PRIMARY KEY (dt, source, contract_no) NOT ENFORCED
) COMMENT 'contracts of both shops' PARTITIONED BY (dt) WITH (
  'bucket' = '2', 'merge-engine' = 'deduplicate', 'sequence.field' = 'touched_at',
  'changelog-producer' = 'lookup', 'deletion-vectors.enabled' = 'true', 'file.format' = 'orc'
);
CREATE TABLE IF NOT EXISTS dim_seller (
  title STRING, squad STRING, home STRING, seller_id INT, PRIMARY KEY (seller_id) NOT ENFORCED
) WITH ('bucket' = '1', 'changelog-producer' = 'input');
CREATE TABLE IF NOT EXISTS dim_tariff (
  label STRING, code SMALLINT, weight DECIMAL(6, 3), vendor STRING,
  PRIMARY KEY (vendor, code) NOT ENFORCED
) WITH ('bucket' = '2');
CREATE TABLE IF NOT EXISTS dim_zone (
  code STRING, dt STRING, town STRING, PRIMARY KEY (dt, code) NOT ENFORCED
) PARTITIONED BY (dt) WITH ('bucket' = '1');
CREATE TABLE IF NOT EXISTS dwd_contract (
  source STRING, no BIGINT, v_month STRING, buyer BIGINT, seller INT, title STRING, squad STRING,
  tariff STRING, town STRING, home_town STRING, `action` STRING, amount DECIMAL(14, 4),
  score DECIMAL(20, 4), trial BOOLEAN, touched_at TIMESTAMP(3), dt STRING,
  PRIMARY KEY (dt, source, no) NOT ENFORCED
) PARTITIONED BY (dt) WITH ('bucket' = '2', 'sequence.field' = 'touched_at');
CREATE TABLE IF NOT EXISTS dws_seller_day (
  dt STRING, seller INT, contracts BIGINT, trials INT, renewals BIGINT, score DECIMAL(20, 4),
  touched TIMESTAMP(3), PRIMARY KEY (seller, dt) NOT ENFORCED
) PARTITIONED BY (dt) WITH (
  'bucket' = '1', 'merge-engine' = 'aggregation', 'fields.default-aggregate-function' = 'sum',
  'fields.touched.aggregate-function' = 'max', 'fields.touched.ignore-retract' = 'true'
);
CREATE TABLE IF NOT EXISTS dws_month (
  buyers BIGINT, renewing BIGINT, newcomers INT, v_month STRING, amount DECIMAL(20, 4),
  PRIMARY KEY (v_month) NOT ENFORCED
) WITH (
  'bucket' = '1', 'merge-engine' = 'aggregation', 'fields.default-aggregate-function' = 'sum'
);
CREATE TABLE IF NOT EXISTS app_board (
  board STRING, squad STRING, contracts BIGINT, score DECIMAL(20, 4),
  PRIMARY KEY (board, squad) NOT ENFORCED
) WITH (
  'bucket' = '1', 'merge-engine' = 'aggregation', 'fields.contracts.aggregate-function' = 'sum',
  'fields.score.aggregate-function' = 'sum'
);
CREATE TABLE IF NOT EXISTS first_price (
  contract_no BIGINT, paid DECIMAL(12, 2), seller INT, PRIMARY KEY (contract_no) NOT ENFORCED
) WITH ('bucket' = '1', 'merge-engine' = 'first-row', 'first-row.ignore-delete' = 'true');
CREATE TABLE IF NOT EXISTS wide_buyer (
  buyer BIGINT, web_at TIMESTAMP(3), web_no BIGINT, web_paid DECIMAL(12, 2),
  app_at TIMESTAMP(3), app_no BIGINT, app_zone STRING, PRIMARY KEY (buyer) NOT ENFORCED
) WITH (
  'bucket' = '1', 'merge-engine' = 'partial-update', 'ignore-delete' = 'true',
  'fields.web_at.sequence-group' = 'web_no,web_paid',
  'fields.app_at.sequence-group' = 'app_no,app_zone', 'changelog-producer' = 'lookup'
);
CREATE TABLE IF NOT EXISTS visit (seller INT, page STRING, at_ TIMESTAMP(3), buyer BIGINT)
  WITH ('bucket' = '-1');
CREATE TABLE IF NOT EXISTS last_visit (
  page STRING, at_ TIMESTAMP(3), buyer BIGINT, grade SMALLINT, PRIMARY KEY (buyer) NOT ENFORCED
) WITH ('bucket' = '1', 'sequence.field' = 'at_');
CREATE TABLE IF NOT EXISTS new_visit (buyer BIGINT, page STRING) WITH ('bucket' = '-1');

CREATE VIEW IF NOT EXISTS v_live AS
  SELECT c.*, CAST(c.paid AS DECIMAL(20, 4)) AS amount FROM ods_contract AS c WHERE c.state <> 9;
CREATE VIEW IF NOT EXISTS v_contract (dt, src, no, v_month, buyer, seller, vendor, code, zone,
  act, amount, trial, touched_at, proc)
  COMMENT 'what is counted' AS
  SELECT dt, source, contract_no, SUBSTRING(dt, 1, 7), buyer, seller, vendor, tariff_code, zone,
    `action`, amount, COALESCE(trial, FALSE), touched_at, proc
  FROM v_live;
CREATE VIEW IF NOT EXISTS v_ranked_visit AS
  SELECT *, ROW_NUMBER() OVER (PARTITION BY buyer ORDER BY at_ DESC) AS rn FROM visit;
"""
JOB = """
SET 'execution.runtime-mode' = 'streaming';
EXECUTE STATEMENT SET
BEGIN
  INSERT INTO ods_contract (dt, source, contract_no, buyer, seller, vendor, tariff_code, zone,
    `action`, paid, state, trial, signed_at, touched_at)
  SELECT DATE_FORMAT(c.signed_at, 'yyyy-MM-dd'), 'web', c.contract_no, c.buyer, c.seller, c.vendor,
    c.tariff_code, NULLIF(TRIM(c.zone), ''), LOWER(c.`action`), c.paid, c.state, c.trial,
    c.signed_at, c.touched_at
  FROM contract_src AS c
  UNION ALL
  SELECT CAST(CAST(a.signed_at AS DATE) AS STRING), 'app', a.uid, a.`user`, a.seller,
    LOWER(TRIM(a.vendor)), CAST(a.code AS SMALLINT),
    CASE a.zone WHEN '-' THEN CAST(NULL AS STRING) ELSE a.zone END,
    IF(a.renewal = 1, 'renew', 'new'), CAST(a.cents / 100.0 AS DECIMAL(14, 4)), a.state,
    CAST(NULL AS BOOLEAN), a.signed_at, CAST(TO_TIMESTAMP_LTZ(a.touched_ms, 3) AS TIMESTAMP(3))
  FROM app_src AS a;

  INSERT INTO dim_seller SELECT name, squad, home, id FROM seller_src;

  INSERT INTO `lake`.`dw`.`dwd_contract` /*+ OPTIONS('sink.parallelism' = '2') */
  SELECT /*+ LOOKUP('table'='t', 'strategy'='partial'),
             lookup('table' = 's', 'retry-predicate' = 'lookup_miss',
               'retry-strategy' = 'fixed_delay', 'fixed-delay' = '200ms', 'max-attempts' = '600',
               'async' = 'true', 'output-mode' = 'allow_unordered') */
    o.src, o.no, o.v_month, o.buyer, o.seller, s.title, s.squad, COALESCE(t.label, 'none'),
    z.town, h.town, o.act, o.amount, CAST(o.amount * t.weight AS DECIMAL(20, 4)), o.trial,
    o.touched_at, o.dt
  FROM v_contract AS o
  INNER JOIN dim_seller FOR SYSTEM_TIME AS OF o.proc AS s ON s.seller_id = o.seller
  LEFT OUTER JOIN dim_tariff FOR SYSTEM_TIME AS OF o.proc AS t
    ON t.code = o.code AND o.vendor = t.vendor
  LEFT JOIN dim_zone /*+ OPTIONS('lookup.dynamic-partition' = 'max_pt()',
      'lookup.dynamic-partition.refresh-interval' = '1 s') */
    FOR SYSTEM_TIME AS OF o.proc AS z ON z.code = o.zone
  LEFT JOIN dim_zone /*+ OPTIONS('scan.partitions' = 'max_pt()') */
    FOR SYSTEM_TIME AS OF PROCTIME() AS h ON s.home = h.code;

  INSERT INTO dws_seller_day
  SELECT dt, seller, COUNT(*), CAST(COUNT(*) FILTER (WHERE trial) AS INT),
    SUM(CASE WHEN `action` = 'renew' THEN 1 ELSE 0 END),
    COALESCE(SUM(score), CAST(0 AS DECIMAL(20, 4))), MAX(touched_at)
  FROM dwd_contract GROUP BY seller, dt;

  INSERT INTO dws_month (v_month, buyers, renewing, newcomers, amount)
  WITH paying AS (SELECT v_month, buyer, `action` AS what, amount FROM dwd_contract
                  WHERE amount > 0)
  SELECT v_month, COUNT(DISTINCT buyer), COUNT(DISTINCT buyer) FILTER (WHERE what = 'renew'),
    CAST(COUNT(DISTINCT CASE WHEN what IN ('new', 'gift') THEN buyer END) AS INT), SUM(amount)
  FROM paying GROUP BY v_month;

  INSERT INTO app_board
  SELECT 'sprint', squad, COUNT(1), SUM(score) FROM dwd_contract
  WHERE dt >= '2026-04-30' AND `action` <> 'gift' GROUP BY squad;

  INSERT INTO first_price SELECT contract_no, paid, seller FROM contract_src;

  INSERT INTO wide_buyer (buyer, web_at, web_no, web_paid)
  SELECT buyer, touched_at, contract_no, paid FROM contract_src;
  INSERT INTO wide_buyer (buyer, app_at, app_no, app_zone)
  SELECT `user`, CAST(TO_TIMESTAMP_LTZ(touched_ms, 3) AS TIMESTAMP(3)), uid, zone FROM app_src;

  INSERT INTO last_visit
  SELECT r.page, r.at_, r.buyer, n.grade
  FROM v_ranked_visit AS r
  LEFT JOIN seller_now FOR SYSTEM_TIME AS OF PROCTIME() AS n ON n.id = r.seller
  WHERE r.rn = 1;

  INSERT INTO new_visit
  SELECT buyer, page FROM visit /*+ OPTIONS('consumer-id' = 'visits', 'scan.mode' = 'latest') */
  WHERE page LIKE '/buy%';
END;
"""
DIMENSIONS = """
SET 'execution.runtime-mode' = 'batch';
INSERT INTO dim_tariff (vendor, code, label, weight)
  SELECT vendor, code, label, weight FROM tariff_now;
INSERT INTO dim_zone (dt, code, town) VALUES ('2026-03-01', 'Z1', 'wrong'),
  ('2026-04-28', 'Z1', 'Ulm'), ('2026-04-28', 'Z2', 'Jena'), ('2026-04-28', 'Z3', 'Köln');
INSERT INTO visit VALUES (3, '/buy/1', TIMESTAMP '2026-05-01 10:00:00', 1),
  (4, '/', TIMESTAMP '2026-05-01 09:00:00.5', 1), (5, '/buy/2', TIMESTAMP '2026-05-01 10:00:00', 2);
"""
LATER = """
SET 'execution.runtime-mode' = 'batch';
INSERT OVERWRITE dim_zone PARTITION (dt = '2026-05-08')
  SELECT code, town FROM dim_zone WHERE dt = '2026-04-28' UNION ALL
  SELECT * FROM (VALUES ('Z9', 'Bonn')) AS v (code, town);
INSERT INTO visit VALUES (6, '/buy/3', TIMESTAMP '2026-05-01 08:00:00', 2),
  (99, '/buy/4', TIMESTAMP '2026-05-02 08:00:00', 3), (5, '/', TIMESTAMP '2026-05-03 08:00:00', 1);
"""


@dataclass
class Lake:
    """A folder with scripts, run by the command alone: the catalog is the script's own."""

    folder: Path
    server: MariaDB

    @property
    def path(self) -> Path:
        return self.folder / "a lake"

    def run(self, *texts: str) -> str:
        """Run a script until it has caught up; what it told."""
        script = self.folder / "crm.sql"
        script.write_text(self._text(*texts))
        ended = Run(self.folder, ["run", str(script), "--until-caught-up"], {}).wait()
        output = ended.err.splitlines()
        assert ended.code == 0, ended.err
        assert [line for line in output if not line.startswith("notice: ")] == []
        return ended.err

    def run_here(self, *texts: str) -> None:
        """The same in this process, which takes less long to start."""
        options = ScriptOptions("crm.sql", until_caught_up=True)
        ScriptRunner(options, CollectedOutput()).run(parse_script(self._text(*texts)))

    def _text(self, *texts: str) -> str:
        values = {"warehouse": self.path, "port": self.server.port}
        text = "".join((HEAD, *texts))
        for name, value in {**values, "user": USER, "password": PASSWORD}.items():
            text = text.replace(f"{{{name}}}", str(value))
        return text

    def rows(self, table: str) -> pa.Table:
        opened = Warehouse(str(self.path)).table(f"dw.{table}")
        return pa.Table.from_batches(list(opened.read()), opened.arrow_schema)


@pytest.fixture(scope="module")
def lake(
    mariadb: MariaDB, spark_here: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Lake, duckdb.DuckDBPyConnection, str]]:
    """The lake after two runs and all that happened between them, the truth, what was told."""
    made = Lake(tmp_path_factory.mktemp("stranger"), mariadb)
    business = Business(mariadb)
    business.open()
    output = made.run(SOURCES, TABLES, DIMENSIONS, JOB)
    business.go_on()
    made.run_here(SOURCES, TABLES, LATER, JOB)
    with business.truth() as truth:
        truth.execute(
            "CREATE TABLE zone AS FROM (VALUES ('Z1','Ulm'),('Z2','Jena'),('Z3','Köln'),"
            "('Z9','Bonn')) AS v (code, town)"
        )
        truth.execute(LIVE)
        truth.register("visit", made.rows("visit"))
        yield made, truth, output


EXPECTED = {
    "ods_contract": """
        SELECT source, no, buyer, seller, vendor, code, zone, action, paid, state, trial,
          signed_at, touched_at, strftime(signed_at, '%Y-%m-%d') FROM newest""",
    "dim_seller": "SELECT name, squad, home, id FROM seller",
    "dim_tariff": "SELECT label, code, weight, vendor FROM tariff",
    "dwd_contract": "SELECT * EXCLUDE (weight) FROM live",
    "dws_seller_day": """
        SELECT dt, seller, count(*), count(*) FILTER (WHERE trial),
          count(*) FILTER (WHERE action = 'renew'), coalesce(sum(score), 0), any_value(touched)
        FROM live JOIN (
          SELECT strftime(signed_at, '%Y-%m-%d') AS dt, seller, max(touched_at) AS touched
          FROM versions WHERE state <> 9 GROUP BY ALL) AS ever USING (dt, seller)
        GROUP BY dt, seller""",
    "dws_month": """
        SELECT count(DISTINCT buyer), count(DISTINCT buyer) FILTER (WHERE action = 'renew'),
          count(DISTINCT buyer) FILTER (WHERE action <> 'renew'), v_month, sum(amount)
        FROM live GROUP BY v_month""",
    "app_board": """
        SELECT 'sprint', squad, count(*), sum(score) FROM live
        WHERE dt >= '2026-04-30' AND action <> 'gift' GROUP BY squad""",
    "first_price": """
        SELECT no, CAST(arg_min(paid, place) AS DECIMAL(12, 2)), arg_min(seller, place)
        FROM versions WHERE source = 'web' GROUP BY no""",
    "wide_buyer": """
        SELECT * FROM (
          SELECT buyer, max(touched_at), arg_max(no, touched_at),
            CAST(arg_max(paid, touched_at) AS DECIMAL(12, 2))
          FROM versions WHERE source = 'web' GROUP BY buyer) AS web
        FULL JOIN (
          SELECT buyer, max(touched_at), arg_max(no, touched_at),
            arg_max(coalesce(zone, '-'), touched_at)
          FROM versions WHERE source = 'app' GROUP BY buyer) AS app USING (buyer)""",
    "last_visit": """
        SELECT page, at_, buyer, grade FROM visit LEFT JOIN seller ON id = visit.seller
        QUALIFY row_number() OVER (PARTITION BY buyer ORDER BY at_ DESC) = 1""",
    "new_visit": "FROM (VALUES (2, '/buy/3'), (3, '/buy/4'))",
}
"""Plain SQL of each table's rows, over the truth."""

LIVE = """
CREATE TABLE live AS
SELECT n.source, n.no, strftime(n.signed_at, '%Y-%m') AS v_month, n.buyer, n.seller, s.name,
  s.squad, coalesce(t.label, 'none') AS tariff, z.town, h.town AS home_town, n.action,
  n.paid AS amount, CAST(n.paid * t.weight AS DECIMAL(20, 4)) AS score,
  coalesce(n.trial, false) AS trial, n.touched_at, strftime(n.signed_at, '%Y-%m-%d') AS dt, t.weight
FROM newest AS n JOIN seller AS s ON s.id = n.seller
LEFT JOIN tariff AS t ON (t.vendor, t.code) = (n.vendor, n.code)
LEFT JOIN zone AS z ON z.code = n.zone LEFT JOIN zone AS h ON h.code = s.home
WHERE n.state <> 9
"""
EMPTY = {"dws_seller_day": "contracts = 0", "dws_month": "buyers = 0", "app_board": "contracts = 0"}
"""Groups whose rows are all gone stay, with 0."""


def difference(truth: duckdb.DuckDBPyConnection, found: pa.Table, sql: str, empty: str) -> Any:
    """What only one side has."""
    truth.register("found", found)
    seen = f"SELECT * FROM found WHERE NOT ({empty})"
    return truth.execute(
        f"(SELECT 'missing', * FROM ({sql} EXCEPT ALL {seen})) UNION ALL "
        f"(SELECT 'wrong', * FROM ({seen} EXCEPT ALL ({sql}))) LIMIT 20"
    ).fetchall()


@pytest.mark.parametrize("table", EXPECTED)
def test_each_table_equals_plain_sql(
    lake: tuple[Lake, duckdb.DuckDBPyConnection, str], table: str
) -> None:
    made, truth, _ = lake
    found = made.rows(table)
    assert found.num_rows > 1
    assert difference(truth, found, f"({EXPECTED[table]})", EMPTY.get(table, "false")) == []


def test_java_reads_the_same(lake: tuple[Lake, duckdb.DuckDBPyConnection, str]) -> None:
    made, truth, _ = lake
    with Sidecar({"warehouse": str(made.path)}) as java:
        for table in EXPECTED:
            truth.register("by_java", java_rows(java, f"dw.{table}"))
            found = made.rows(table)
            assert difference(truth, found, "(FROM by_java)", "false") == [], table


def test_options_without_effect_have_notices(
    lake: tuple[Lake, duckdb.DuckDBPyConnection, str],
) -> None:
    output = lake[2]
    for key in ("state.backend.type", "execution.checkpointing.mode"):
        assert f"notice: SET '{key}' has no effect here: " in output
    assert "INSERT INTO lake.dw.dwd_contract: option 'sink.parallelism' has no effect" in output
    assert "checkpointing.interval" not in output
