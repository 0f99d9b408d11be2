CREATE DATABASE IF NOT EXISTS shop; USE shop;
CREATE TEMPORARY TABLE order_source (customer_id INT, price DOUBLE) WITH (
  'connector' = 'datagen', 'rows-per-second' = '1000', 'number-of-rows' = '3000',
  'fields.customer_id.min' = '1', 'fields.customer_id.max' = '3');
CREATE TABLE IF NOT EXISTS spending (
  customer_id INT PRIMARY KEY NOT ENFORCED, orders BIGINT, total DOUBLE
) WITH ('merge-engine' = 'aggregation', 'fields.orders.aggregate-function' = 'sum',
        'fields.total.aggregate-function' = 'sum');
INSERT INTO spending
SELECT customer_id, COUNT(*), SUM(price) FROM order_source GROUP BY customer_id;
