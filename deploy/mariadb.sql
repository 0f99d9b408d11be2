-- The shop's table, and the user that follows its changes.
CREATE DATABASE IF NOT EXISTS shop;
CREATE TABLE IF NOT EXISTS shop.customers (id INT PRIMARY KEY, country VARCHAR(40) NOT NULL);
INSERT IGNORE INTO shop.customers VALUES (1, 'Portugal'), (2, 'France'), (3, 'Portugal');
CREATE USER IF NOT EXISTS streamhouse IDENTIFIED BY 'streamhouse';
GRANT SELECT, LOCK TABLES, TRIGGER, REPLICATION SLAVE, BINLOG MONITOR, REPLICATION SLAVE ADMIN
  ON *.* TO streamhouse;
