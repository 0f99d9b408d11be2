-- Revenue per country: generated orders, joined with the customers as they are at that moment.
SET 'pipeline.name' = 'revenue';
SET 'execution.checkpointing.interval' = '500 ms';

CREATE DATABASE IF NOT EXISTS shop;
USE shop;

-- 5,000 orders, then it ends. Without 'number-of-rows' it never does.
CREATE TEMPORARY TABLE order_source (
  order_id BIGINT,
  customer_id INT,
  price DOUBLE
) WITH (
  'connector' = 'datagen',
  'rows-per-second' = '2500',
  'number-of-rows' = '5000',
  'fields.order_id.kind' = 'sequence',
  'fields.order_id.start' = '1',
  'fields.order_id.end' = '5000',
  'fields.customer_id.min' = '1',
  'fields.customer_id.max' = '5',
  'fields.price.min' = '1',
  'fields.price.max' = '100'
);

-- An append-only table: it replaces a message queue.
CREATE TABLE IF NOT EXISTS orders (
  order_id BIGINT,
  customer_id INT,
  price DOUBLE,
  proc_time AS PROCTIME()
) WITH ('bucket' = '-1');

CREATE TABLE IF NOT EXISTS customers (
  id INT,
  name STRING,
  country STRING,
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
  'fields.revenue.aggregate-function' = 'sum'
);

-- Customer 5 is not there yet: its orders are tried again, and kept if that does not help.
INSERT INTO customers VALUES
  (1, 'Ann', 'Norway'), (2, 'Ben', 'Chile'), (3, 'Cid', 'Norway'), (4, 'Dua', 'Kenya');

INSERT INTO orders SELECT order_id, customer_id, price FROM order_source;

INSERT INTO country_sales
SELECT /*+ LOOKUP('table'='c', 'retry-predicate'='lookup_miss', 'retry-strategy'='fixed_delay',
                  'fixed-delay'='1s', 'max-attempts'='2') */
  c.country,
  1 AS orders,
  o.price AS revenue
FROM orders AS o
JOIN customers FOR SYSTEM_TIME AS OF o.proc_time AS c
  ON o.customer_id = c.id;
