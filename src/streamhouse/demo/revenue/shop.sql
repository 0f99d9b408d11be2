-- The customers of the shop in MySQL, and the user of the job that fills them: the one who follows the
-- changes cannot write.
DROP DATABASE IF EXISTS shop;
CREATE DATABASE shop;
CREATE TABLE shop.customers (
  id INT PRIMARY KEY, name VARCHAR(100), country VARCHAR(100), zip VARCHAR(20)
);
CREATE USER IF NOT EXISTS '$writer'@'%' IDENTIFIED BY '$password';
GRANT SELECT, INSERT, UPDATE, DELETE ON shop.* TO '$writer'@'%';
