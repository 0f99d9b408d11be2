CREATE DATABASE IF NOT EXISTS shop; USE shop;
CREATE TEMPORARY TABLE order_source (customer_id INT, price DOUBLE) WITH (
  'connector' = 'datagen', 'rows-per-second' = '1000', 'number-of-rows' = '3000',
  'fields.customer_id.min' = '1', 'fields.customer_id.max' = '3');
CREATE TABLE IF NOT EXISTS customers (id INT PRIMARY KEY NOT ENFORCED, country STRING);
INSERT INTO customers VALUES (1, 'France'), (2, 'Kenya'), (3, 'Kenya');
CREATE MATERIALIZED VIEW spending AS
SELECT c.country, COUNT(*) AS orders, AVG(o.price) AS average, MAX(o.price) AS most
FROM order_source AS o JOIN customers AS c ON o.customer_id = c.id
GROUP BY c.country;
