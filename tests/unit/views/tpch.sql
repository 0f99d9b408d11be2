-- The 22 questions of TPC-H, over the tables of test_tpch.py.

-- name: q1
SELECT returned, status, SUM(quantity) AS qty, SUM(price) AS base, SUM(price * (1 - discount)) AS net,
AVG(quantity) AS avg_qty, AVG(discount) AS avg_disc, COUNT(*) AS n FROM lines WHERE shipped <=
DATE '1998-12-01' - INTERVAL '90' DAY GROUP BY returned, status ORDER BY returned, status;

-- name: q2
SELECT s.balance, s.name, n.name AS nation, p.id FROM parts p, suppliers s, stock k, nations n WHERE
p.id = k.part AND s.id = k.supplier AND p.size_ < 30 AND s.nation = n.id AND k.cost = (SELECT
MIN(k2.cost) FROM stock k2, suppliers s2, nations n2 WHERE p.id = k2.part AND s2.id = k2.supplier
AND s2.nation = n2.id AND n2.region = n.region) ORDER BY s.balance DESC, p.id LIMIT 100;

-- name: q3
SELECT l.sale, SUM(l.price * (1 - l.discount)) AS revenue, o.day_ FROM clients c, sales o, lines l
WHERE c.segment = 'A' AND c.id = o.client AND l.sale = o.id AND o.day_ < DATE '1997-06-01' GROUP BY
l.sale, o.day_ ORDER BY revenue DESC, o.day_, l.sale LIMIT 10;

-- name: q4
SELECT priority, COUNT(*) AS n FROM sales o WHERE EXISTS (SELECT * FROM lines l WHERE l.sale = o.id
AND l.due < l.received) GROUP BY priority;

-- name: q5
SELECT n.name, SUM(l.price * (1 - l.discount)) AS revenue FROM clients c, sales o, lines l, suppliers
s, nations n WHERE c.id = o.client AND l.sale = o.id AND l.supplier = s.id AND c.nation = s.nation
AND s.nation = n.id AND n.region = 1 GROUP BY n.name;

-- name: q6
SELECT SUM(price * discount) AS revenue FROM lines WHERE shipped >= DATE '1997-01-01' AND discount
BETWEEN 0.02 AND 0.08 AND quantity < 24;

-- name: q7
SELECT a, b, y, SUM(volume) AS revenue FROM (SELECT n1.name AS a, n2.name AS b, EXTRACT(YEAR FROM
l.shipped) AS y, l.price * (1 - l.discount) AS volume FROM suppliers s, lines l, sales o, clients c,
nations n1, nations n2 WHERE s.id = l.supplier AND o.id = l.sale AND c.id = o.client AND s.nation =
n1.id AND c.nation = n2.id AND (n1.id = 1 AND n2.id = 2 OR n1.id = 2 AND n2.id = 1)) AS shipping
GROUP BY a, b, y;

-- name: q8
SELECT y, SUM(CASE WHEN nation = 'N1' THEN volume ELSE 0 END) / SUM(volume) AS share FROM (SELECT
EXTRACT(YEAR FROM o.day_) AS y, l.price * (1 - l.discount) AS volume, n2.name AS nation FROM parts p
JOIN lines l ON p.id = l.part JOIN suppliers s ON s.id = l.supplier JOIN sales o ON l.sale = o.id
JOIN clients c ON o.client = c.id JOIN nations n1 ON c.nation = n1.id JOIN nations n2 ON s.nation =
n2.id WHERE n1.region = 0) GROUP BY y HAVING SUM(volume) <> 0;

-- name: q9
SELECT nation, y, SUM(amount) AS profit FROM (SELECT n.name AS nation, EXTRACT(YEAR FROM o.day_) AS
y, l.price * (1 - l.discount) - k.cost * l.quantity AS amount FROM parts p, suppliers s, lines l,
stock k, sales o, nations n WHERE s.id = l.supplier AND k.supplier = l.supplier AND k.part = l.part
AND p.id = l.part AND o.id = l.sale AND s.nation = n.id AND p.name LIKE '%a%') GROUP BY nation, y;

-- name: q10
SELECT c.id, c.name, SUM(l.price * (1 - l.discount)) AS revenue, n.name AS nation FROM clients c JOIN
sales o ON c.id = o.client JOIN lines l ON l.sale = o.id JOIN nations n ON c.nation = n.id WHERE
l.returned = 'R' GROUP BY c.id, c.name, n.name ORDER BY revenue DESC, c.id LIMIT 20;

-- name: q11
SELECT k.part, SUM(k.cost * k.available) AS v FROM stock k, suppliers s WHERE k.supplier = s.id GROUP
BY k.part HAVING SUM(k.cost * k.available) > (SELECT SUM(k.cost * k.available) * 0.1 FROM stock k,
suppliers s WHERE k.supplier = s.id);

-- name: q12
SELECT l.mode_, SUM(CASE WHEN o.priority IN ('1', '2') THEN 1 ELSE 0 END) AS high, SUM(CASE WHEN
o.priority NOT IN ('1', '2') THEN 1 ELSE 0 END) AS low FROM sales o, lines l WHERE o.id = l.sale AND
l.due < l.received AND l.shipped < l.due GROUP BY l.mode_;

-- name: q13
SELECT n, COUNT(*) AS clients FROM (SELECT c.id, COUNT(o.id) AS n FROM clients c LEFT JOIN sales o ON
c.id = o.client AND o.priority <> '3' GROUP BY c.id) AS per_client GROUP BY n;

-- name: q14
SELECT 100.00 * SUM(CASE WHEN p.name LIKE 'a%' THEN l.price * (1 - l.discount) ELSE 0 END) /
NULLIF(SUM(l.price * (1 - l.discount)), 0) AS promo FROM lines l, parts p WHERE l.part = p.id;

-- name: q15
WITH revenue AS (SELECT supplier, SUM(price * (1 - discount)) AS total FROM lines GROUP BY supplier)
SELECT s.id, s.name, r.total FROM suppliers s, revenue r WHERE s.id = r.supplier AND r.total =
(SELECT MAX(total) FROM revenue);

-- name: q16
SELECT p.name, p.size_, COUNT(DISTINCT k.supplier) AS n FROM stock k, parts p WHERE p.id = k.part AND
p.size_ IN (1, 10, 20, 30) AND k.supplier NOT IN (SELECT id FROM suppliers WHERE balance < 0) GROUP
BY p.name, p.size_;

-- name: q17
SELECT SUM(l.price) / 7.0 AS yearly FROM lines l, parts p WHERE p.id = l.part AND l.quantity < (SELECT
0.8 * AVG(l2.quantity) FROM lines l2 WHERE l2.part = p.id);

-- name: q18
SELECT c.name, o.id, o.day_, SUM(l.quantity) AS qty FROM clients c, sales o, lines l WHERE o.id IN
(SELECT sale FROM lines GROUP BY sale HAVING SUM(quantity) > 40) AND c.id = o.client AND o.id =
l.sale GROUP BY c.name, o.id, o.day_ ORDER BY qty DESC, o.id LIMIT 100;

-- name: q19
SELECT SUM(l.price * (1 - l.discount)) AS revenue FROM lines l, parts p WHERE (p.id = l.part AND
p.size_ BETWEEN 1 AND 10 AND l.quantity < 20) OR (p.id = l.part AND p.size_ > 10 AND l.mode_ IN
('AIR', 'RAIL'));

-- name: q20
SELECT s.name FROM suppliers s WHERE s.id IN (SELECT k.supplier FROM stock k WHERE k.part IN (SELECT
id FROM parts WHERE name LIKE 'a%') AND k.available > (SELECT 0.5 * SUM(l.quantity) FROM lines l
WHERE l.part = k.part AND l.supplier = k.supplier));

-- name: q21
SELECT s.name, COUNT(*) AS waiting FROM suppliers s, lines l1, sales o WHERE s.id = l1.supplier AND
o.id = l1.sale AND l1.received > l1.due AND EXISTS (SELECT * FROM lines l2 WHERE l2.sale = l1.sale AND
l2.supplier <> l1.supplier) AND NOT EXISTS (SELECT * FROM lines l3 WHERE l3.sale = l1.sale AND
l3.supplier <> l1.supplier AND l3.received > l3.due) GROUP BY s.name ORDER BY waiting DESC, s.name
LIMIT 100;

-- name: q22
SELECT code, COUNT(*) AS n, SUM(balance) AS total FROM (SELECT SUBSTRING(phone FROM 1 FOR 1) AS code,
balance FROM clients c WHERE balance > (SELECT AVG(balance) FROM clients WHERE balance > 0) AND NOT
EXISTS (SELECT * FROM sales o WHERE o.client = c.id)) AS idle GROUP BY code;
