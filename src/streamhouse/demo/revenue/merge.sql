-- The view has the countries of all customers, with 0 until they buy; others are deleted.
USE shop;

MERGE INTO country_sales AS v
USING (SELECT DISTINCT country FROM customers) AS c
ON v.country = c.country
WHEN NOT MATCHED THEN INSERT (country, orders, revenue) VALUES (c.country, 0, 0)
WHEN NOT MATCHED BY SOURCE THEN DELETE;
