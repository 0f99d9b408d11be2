// The script that the editor shows first.

export const EXAMPLE = `-- Random orders; keeps the total spending of each customer up to date.
CREATE DATABASE IF NOT EXISTS shop;
USE shop;

CREATE TEMPORARY TABLE order_source (customer_id INT, price DOUBLE) WITH (
  'connector' = 'datagen', 'rows-per-second' = '100',
  'fields.customer_id.min' = '1', 'fields.customer_id.max' = '8',
  'fields.price.min' = '1', 'fields.price.max' = '100'
);

CREATE TABLE IF NOT EXISTS spending (
  customer_id INT PRIMARY KEY NOT ENFORCED, orders BIGINT, total DOUBLE
) WITH (
  'merge-engine' = 'aggregation',
  'fields.orders.aggregate-function' = 'sum',
  'fields.total.aggregate-function' = 'sum'
);

INSERT INTO spending
SELECT customer_id, COUNT(*), SUM(price) FROM order_source GROUP BY customer_id;
`;
