-- Revenue by country, as of now: orders arrive, and customers move.
SET 'pipeline.name' = 'shop';
CREATE DATABASE IF NOT EXISTS shop;
USE shop;

-- Ten orders a second. Replace this by your source: see docs/reference/connectors.md of Streamhouse.
CREATE TEMPORARY TABLE orders (customer_id INT, price DECIMAL(10, 2)) WITH (
  'connector' = 'datagen', 'rows-per-second' = '10',
  'fields.customer_id.min' = '1', 'fields.customer_id.max' = '3'
);

CREATE TABLE IF NOT EXISTS customers (id INT PRIMARY KEY NOT ENFORCED, country STRING);
INSERT INTO customers VALUES (1, 'France'), (2, 'Kenya'), (3, 'Kenya');

CREATE MATERIALIZED VIEW revenue AS
SELECT c.country, COUNT(*) AS orders, SUM(o.price) AS revenue
FROM orders AS o JOIN customers AS c ON o.customer_id = c.id
GROUP BY c.country;
