-- Revenue per country, live: the main job of the demo.
SET 'pipeline.name' = 'revenue';
SET 'execution.checkpointing.interval' = '1 s';

CREATE DATABASE IF NOT EXISTS shop;
USE shop;

CREATE TEMPORARY TABLE order_generator (
  order_id BIGINT,
  customer_id INT,
  price DOUBLE,
  order_time TIMESTAMP(3)
) WITH (
  'connector' = 'datagen',
  'rows-per-second' = '${orders_per_second}',
  'number-of-rows' = '${orders}',
  'fields.order_id.kind' = 'sequence',
  'fields.order_id.start' = '1',
  'fields.order_id.end' = '9223372036854775806',
  'fields.customer_id.min' = '1',
  'fields.customer_id.max' = '10',
  'fields.price.min' = '1',
  'fields.price.max' = '100'
);

CREATE TABLE IF NOT EXISTS orders (
  order_id BIGINT,
  customer_id INT,
  price DOUBLE,
  order_time TIMESTAMP(3),
  proc_time AS PROCTIME()
) WITH ('bucket' = '-1');

CREATE TABLE IF NOT EXISTS customers (
  id INT,
  name STRING,
  country STRING,
  zip STRING,
  PRIMARY KEY (id) NOT ENFORCED
) WITH ('bucket' = '1', 'changelog-producer' = 'input');

CREATE TABLE IF NOT EXISTS country_sales (
  country STRING,
  orders BIGINT,
  revenue DOUBLE,
  PRIMARY KEY (country) NOT ENFORCED
) WITH (
  'bucket' = '1',
  'merge-engine' = 'aggregation',
  'fields.orders.aggregate-function' = 'sum',
  'fields.revenue.aggregate-function' = 'sum',
  'changelog-producer' = 'full-compaction',
  'full-compaction.delta-commits' = '10'
);

-- 1. Orders: the table replaces a message queue.
INSERT INTO orders SELECT order_id, customer_id, ROUND(price, 2), order_time FROM order_generator;

-- 2. Customers: MySQL's snapshot, then its binlog.
CALL sys.sync_mysql_table(
  table => 'customers',
  mysql_conf => 'hostname=127.0.0.1,port=${port},username=${username},password=${password},
    database-name=shop,table-name=customers'
);

-- 3. The view. An order whose customer has not arrived yet waits for it.
INSERT INTO country_sales
SELECT /*+ LOOKUP('table'='c', 'retry-predicate'='lookup_miss', 'retry-strategy'='fixed_delay',
                  'fixed-delay'='1s', 'max-attempts'='10') */
  c.country, 1, o.price
FROM orders AS o
JOIN customers FOR SYSTEM_TIME AS OF o.proc_time AS c
  ON o.customer_id = c.id;
