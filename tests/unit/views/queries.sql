-- Views over the tables of view_session.py; each has a name.

-- name: join
SELECT o.id, c.name FROM orders o JOIN customers c ON o.customer_id = c.id;

-- name: left_join
SELECT o.id, c.name, c.country FROM orders o LEFT JOIN customers c ON o.customer_id = c.id;

-- name: right_join
SELECT o.id, c.id AS customer FROM orders o RIGHT JOIN customers c ON o.customer_id = c.id;

-- name: full_join
SELECT o.id, c.id AS customer FROM orders o FULL JOIN customers c ON o.customer_id = c.id;

-- name: cross_join
SELECT o.id, c.id AS customer FROM orders o CROSS JOIN customers c;

-- name: comma_join
SELECT o.id, c.id AS customer FROM orders o, customers c WHERE o.customer_id < c.id;

-- name: self_join
SELECT a.id, b.id AS other FROM orders a JOIN orders b ON a.customer_id = b.customer_id AND a.id <
b.id;

-- name: three_joins
SELECT o.id, c.name, v.page FROM orders o JOIN customers c ON o.customer_id = c.id LEFT JOIN
visits v ON v.customer_id = c.id;

-- name: using
SELECT customer_id, o.id, v.page FROM orders o JOIN visits v USING (customer_id);

-- name: natural_join
SELECT * FROM orders NATURAL JOIN visits;

-- name: lateral
SELECT c.name, t.id FROM customers c LEFT JOIN LATERAL (SELECT o.id FROM orders o WHERE
o.customer_id = c.id ORDER BY price DESC, id LIMIT 2) t ON TRUE;

-- name: row_in
SELECT id FROM orders o WHERE (customer_id, product) NOT IN (SELECT customer_id, page FROM visits v
WHERE v.seconds < o.amount);

-- name: ordinality
SELECT o.id, t.tag, t.p FROM orders o CROSS JOIN UNNEST(o.tags) WITH ORDINALITY AS t (tag, p);

-- name: values
VALUES (1, 'a'), (2, 'b');

-- name: qualify
SELECT id, product FROM orders QUALIFY RANK() OVER (PARTITION BY product ORDER BY price) = 1;

-- name: semi_in
SELECT * FROM customers WHERE id IN (SELECT customer_id FROM orders);

-- name: anti_not_in
SELECT * FROM customers WHERE id NOT IN (SELECT customer_id FROM orders WHERE customer_id IS NOT
NULL);

-- name: not_in_null
SELECT id FROM customers WHERE id NOT IN (SELECT customer_id FROM orders);

-- name: exists
SELECT id FROM customers c WHERE EXISTS (SELECT 1 FROM orders o WHERE o.customer_id = c.id AND
o.amount > 0);

-- name: not_exists
SELECT id FROM customers c WHERE NOT EXISTS (SELECT 1 FROM visits v WHERE v.customer_id = c.id);

-- name: group
SELECT c.country, COUNT(*) AS orders, SUM(o.price) AS revenue, AVG(o.price) AS average, MAX(o.at_)
AS newest FROM orders o JOIN customers c ON o.customer_id = c.id GROUP BY c.country;

-- name: global
SELECT COUNT(*) AS n, SUM(amount) AS s, MIN(price) AS least, AVG(rate) AS a FROM orders WHERE
amount < 5;

-- name: doubles
SELECT product, SUM(rate) AS s, AVG(rate) AS a, STDDEV_POP(rate) AS d FROM orders GROUP BY product;

-- name: having
SELECT product, COUNT(*) AS n FROM orders GROUP BY product HAVING COUNT(*) > 1 AND MAX(price) > 0;

-- name: distinct
SELECT DISTINCT product, amount FROM orders;

-- name: count_distinct
SELECT product, COUNT(DISTINCT customer_id) AS c, SUM(DISTINCT price) AS s FROM orders GROUP BY
product;

-- name: filter
SELECT product, COUNT(*) FILTER (WHERE amount > 0) AS big, SUM(price) FILTER (WHERE price < 0) AS
low FROM orders GROUP BY product;

-- name: rollup
SELECT product, customer_id, COUNT(*) AS n FROM orders GROUP BY ROLLUP (product, customer_id);

-- name: cube
SELECT product, customer_id, SUM(price) AS n FROM orders GROUP BY CUBE (product, customer_id);

-- name: grouping_sets
SELECT product, customer_id, MAX(at_) AS n, GROUPING(product) AS g FROM orders GROUP BY GROUPING
SETS ((product), (customer_id), ());

-- name: union
SELECT customer_id FROM orders UNION SELECT id FROM customers;

-- name: union_all
SELECT customer_id AS c, id FROM orders UNION ALL SELECT id, id FROM customers;

-- name: intersect
SELECT customer_id FROM orders INTERSECT SELECT customer_id FROM visits;

-- name: intersect_all
SELECT customer_id FROM orders INTERSECT ALL SELECT customer_id FROM visits;

-- name: except
SELECT id FROM customers EXCEPT SELECT customer_id FROM orders;

-- name: except_all
SELECT customer_id FROM visits EXCEPT ALL SELECT customer_id FROM orders;

-- name: scalar
SELECT id, price - (SELECT AVG(price) FROM orders) AS above FROM orders;

-- name: correlated
SELECT c.id, (SELECT MAX(o.price) FROM orders o WHERE o.customer_id = c.id) AS best FROM customers
c;

-- name: above_average
SELECT o.id FROM orders o WHERE o.price > (SELECT AVG(i.price) FROM orders i WHERE i.product =
o.product);

-- name: top
SELECT * FROM (SELECT id, product, price, ROW_NUMBER() OVER (PARTITION BY product ORDER BY price
DESC, id) AS rn FROM orders) WHERE rn <= 2;

-- name: dedup
SELECT id, customer_id, at_ FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY customer_id ORDER BY
at_ DESC, id) AS rn FROM orders) WHERE rn = 1;

-- name: rank
SELECT id, RANK() OVER (PARTITION BY product ORDER BY price) AS r, DENSE_RANK() OVER (ORDER BY
amount) AS d FROM orders;

-- name: limit
SELECT id, price FROM orders ORDER BY price DESC, id LIMIT 3;

-- name: over
SELECT id, SUM(price) OVER (PARTITION BY customer_id ORDER BY at_, id) AS running, LAG(id) OVER
(ORDER BY at_, id) AS before FROM orders;

-- name: unnest
SELECT o.id, t.tag FROM orders o CROSS JOIN UNNEST(o.tags) AS t (tag);

-- name: cte
WITH spent AS (SELECT customer_id, SUM(price) AS total FROM orders GROUP BY customer_id) SELECT
c.name, s.total FROM spent s JOIN customers c ON s.customer_id = c.id WHERE s.total > 0;

-- name: case
SELECT CASE WHEN price > 0 THEN 'up' WHEN price < 0 THEN 'down' END AS way, COUNT(*) AS n FROM
orders GROUP BY CASE WHEN price > 0 THEN 'up' WHEN price < 0 THEN 'down' END;

-- name: expressions
SELECT id, UPPER(product) AS p, COALESCE(amount, 0) AS a, EXTRACT(HOUR FROM at_) AS h FROM orders
WHERE product LIKE '%n%' OR product IS NULL;

-- name: nested
SELECT country, MAX(n) AS most FROM (SELECT c.country, c.id, COUNT(o.id) AS n FROM customers c
LEFT JOIN orders o ON o.customer_id = c.id GROUP BY c.country, c.id) GROUP BY country;

-- name: listagg
SELECT product, COUNT(*) AS n, MIN(CAST(at_ AS DATE)) AS first_day FROM orders GROUP BY product;

-- name: hour
SELECT FLOOR(at_ TO HOUR) AS h, COUNT(*) AS n, SUM(price) AS s FROM orders GROUP BY FLOOR(at_ TO
HOUR);

-- name: constant
SELECT 1 AS one, 'x' AS x FROM orders;

-- name: copy
SELECT * FROM orders;

-- name: append
SELECT * FROM visits;
