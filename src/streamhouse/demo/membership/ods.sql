-- ODS: copies of the tables in MySQL, and the cities, which are not in MySQL.
SET 'pipeline.name' = 'membership';
SET 'execution.checkpointing.interval' = '1 s';

CREATE DATABASE IF NOT EXISTS membership;
USE membership;

CREATE TEMPORARY TABLE member_order_in_mysql (
  id BIGINT,
  v_date STRING,
  member_id BIGINT,
  agent_id INT,
  product_id INT,
  city_id INT,
  kind STRING,
  amount DECIMAL(12, 2),
  status STRING,
  event_time TIMESTAMP(3),
  PRIMARY KEY (id) NOT ENFORCED
) WITH (
  'connector' = 'mysql-cdc',
  'hostname' = '127.0.0.1',
  'port' = '3306',
  'username' = 'streamhouse',
  'password' = 'streamhouse',
  'database-name' = 'membership',
  'table-name' = 'member_order',
  'server-time-zone' = 'UTC'
);

CREATE TEMPORARY TABLE product_in_mysql (
  id INT,
  name STRING,
  points DECIMAL(6, 2),
  PRIMARY KEY (id) NOT ENFORCED
) WITH (
  'connector' = 'mysql-cdc',
  'hostname' = '127.0.0.1',
  'port' = '3306',
  'username' = 'streamhouse',
  'password' = 'streamhouse',
  'database-name' = 'membership',
  'table-name' = 'product',
  'server-time-zone' = 'UTC'
);

CREATE TEMPORARY TABLE agent_in_mysql (
  id INT,
  name STRING,
  team STRING,
  level INT,
  PRIMARY KEY (id) NOT ENFORCED
) WITH (
  'connector' = 'mysql-cdc',
  'hostname' = '127.0.0.1',
  'port' = '3306',
  'username' = 'streamhouse',
  'password' = 'streamhouse',
  'database-name' = 'membership',
  'table-name' = 'agent',
  'server-time-zone' = 'UTC'
);

-- The key replaces ROW_NUMBER(); the sequence field keeps late events from overwriting newer ones.
CREATE TABLE IF NOT EXISTS ods_member_order (
  v_date STRING,
  id BIGINT,
  member_id BIGINT,
  agent_id INT,
  product_id INT,
  city_id INT,
  kind STRING,
  amount DECIMAL(12, 2),
  status STRING,
  event_time TIMESTAMP(3),
  proc_time AS PROCTIME(),
  PRIMARY KEY (v_date, id) NOT ENFORCED
) PARTITIONED BY (v_date) WITH (
  'bucket' = '4',
  'merge-engine' = 'deduplicate',
  'sequence.field' = 'event_time',
  'changelog-producer' = 'lookup',
  'deletion-vectors.enabled' = 'true',
  'file.format' = 'orc'
);

-- The orders as a stream of changes, which DWD reads.
CREATE VIEW IF NOT EXISTS member_order_changes AS SELECT * FROM ods_member_order;

CREATE TABLE IF NOT EXISTS dim_product (
  id INT,
  name STRING,
  points DECIMAL(6, 2),
  PRIMARY KEY (id) NOT ENFORCED
) WITH ('bucket' = '1', 'changelog-producer' = 'input');

CREATE TABLE IF NOT EXISTS dim_agent (
  id INT,
  name STRING,
  team STRING,
  level INT,
  PRIMARY KEY (id) NOT ENFORCED
) WITH ('bucket' = '2', 'changelog-producer' = 'input');

-- The cities are not in MySQL: this script fills the table.
CREATE TABLE IF NOT EXISTS dim_city (
  id INT,
  name STRING,
  region STRING,
  PRIMARY KEY (id) NOT ENFORCED
) WITH ('bucket' = '2');

INSERT INTO dim_city VALUES
  (1, 'Lisbon', 'south'), (2, 'Porto', 'south'), (3, 'Lyon', 'west'), (4, 'Nantes', 'west'),
  (5, 'Graz', 'east'), (6, 'Brno', 'east'), (7, 'Turku', 'north'), (8, 'Bergen', 'north');

INSERT INTO ods_member_order
SELECT v_date, id, member_id, agent_id, product_id, city_id, kind, amount, status, event_time
FROM member_order_in_mysql;

INSERT INTO dim_product SELECT id, name, points FROM product_in_mysql;

INSERT INTO dim_agent SELECT id, name, team, level FROM agent_in_mysql;
