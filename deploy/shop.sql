-- Revenue by country: orders of a Kafka topic, customers of a MariaDB table.
SET 'pipeline.name' = 'shop';
CREATE DATABASE IF NOT EXISTS shop;
USE shop;

CREATE TEMPORARY TABLE orders (
  id BIGINT, customer_id INT, price DECIMAL(10, 2)
) WITH (
  'connector' = 'kafka', 'topic' = 'orders', 'format' = 'json',
  'properties.bootstrap.servers' = '${env:KAFKA}', 'scan.startup.mode' = 'earliest-offset'
);

CREATE TEMPORARY TABLE customers (
  id INT PRIMARY KEY NOT ENFORCED, country STRING
) WITH (
  'connector' = 'mysql-cdc', 'hostname' = '${env:MYSQL_HOST}', 'port' = '${env:MYSQL_PORT}',
  'username' = 'streamhouse', 'password' = '${env:MYSQL_PASSWORD}',
  'database-name' = 'shop', 'table-name' = 'customers'
);

CREATE MATERIALIZED VIEW revenue AS
SELECT c.country, COUNT(*) AS orders, SUM(o.price) AS revenue
FROM orders AS o JOIN customers AS c ON o.customer_id = c.id
GROUP BY c.country;
