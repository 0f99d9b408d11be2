-- name: q1
SELECT auction, bidder, 0.908 * price AS price, `dateTime`, extra FROM bid;
-- name: q2
SELECT auction, price FROM bid WHERE MOD(auction, 3) = 0;
-- name: q3
SELECT P.name, P.city, P.state, A.id FROM auction AS A INNER JOIN person AS P ON A.seller = P.id
WHERE A.category = 10 AND (P.state = 'OR' OR P.state = 'ID' OR P.state = 'CA');
-- name: q4
SELECT Q.category, AVG(Q.final) AS average FROM (
  SELECT MAX(B.price) AS final, A.category FROM auction A, bid B
  WHERE A.id = B.auction AND B.`dateTime` BETWEEN A.`dateTime` AND A.expires GROUP BY A.id, A.category
) Q GROUP BY Q.category;
-- name: q9
SELECT id, itemName, reserve, `dateTime`, expires, seller, category, auction, bidder, price, bid_dateTime FROM (
  SELECT A.*, B.auction, B.bidder, B.price, B.`dateTime` AS bid_dateTime,
    ROW_NUMBER() OVER (PARTITION BY A.id ORDER BY B.price DESC, B.`dateTime` ASC) AS rownum
  FROM auction A, bid B WHERE A.id = B.auction AND B.`dateTime` BETWEEN A.`dateTime` AND A.expires
) WHERE rownum <= 1;
-- name: q13
SELECT B.auction, B.bidder, B.price, B.`dateTime`, P.city FROM bid B LEFT JOIN person P ON MOD(B.auction, 7) = P.id;
-- name: q14
SELECT auction, bidder, 0.908 * price AS price, CASE
  WHEN HOUR(`dateTime`) >= 8 AND HOUR(`dateTime`) <= 18 THEN 'dayTime'
  WHEN HOUR(`dateTime`) <= 6 OR HOUR(`dateTime`) >= 20 THEN 'nightTime' ELSE 'otherTime' END AS bidTimeType,
  CHAR_LENGTH(extra) - CHAR_LENGTH(REPLACE(extra, 'c', '')) AS c_counts
FROM bid WHERE 0.908 * price > 1000 AND 0.908 * price < 50000;
-- name: q15
SELECT DATE_FORMAT(`dateTime`, 'yyyy-MM-dd') AS `day`, COUNT(*) AS total_bids,
  COUNT(*) FILTER (WHERE price < 10000) AS rank1_bids, COUNT(*) FILTER (WHERE price >= 10000) AS rank2_bids,
  COUNT(DISTINCT bidder) AS total_bidders, COUNT(DISTINCT bidder) FILTER (WHERE price < 10000) AS rank1_bidders,
  COUNT(DISTINCT auction) AS total_auctions, COUNT(DISTINCT auction) FILTER (WHERE price >= 10000) AS rank2_auctions
FROM bid GROUP BY DATE_FORMAT(`dateTime`, 'yyyy-MM-dd');
-- name: q16
SELECT channel, DATE_FORMAT(`dateTime`, 'yyyy-MM-dd') AS `day`, MAX(DATE_FORMAT(`dateTime`, 'HH:mm')) AS `minute`,
  COUNT(*) AS total_bids, COUNT(DISTINCT bidder) FILTER (WHERE price < 10000) AS rank1_bidders
FROM bid GROUP BY channel, DATE_FORMAT(`dateTime`, 'yyyy-MM-dd');
-- name: q17
SELECT auction, DATE_FORMAT(`dateTime`, 'yyyy-MM-dd') AS `day`, COUNT(*) AS total_bids, MIN(price) AS min_price,
  MAX(price) AS max_price, AVG(price) AS avg_price, SUM(price) AS sum_price
FROM bid GROUP BY auction, DATE_FORMAT(`dateTime`, 'yyyy-MM-dd');
-- name: q18
SELECT auction, bidder, price, channel, url, `dateTime` FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY bidder, auction ORDER BY `dateTime` DESC) AS rank_number FROM bid
) WHERE rank_number <= 1;
-- name: q19
SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price DESC) AS rank_number FROM bid)
WHERE rank_number <= 2;
-- name: q20
SELECT auction, bidder, price, B.`dateTime`, itemName, reserve, A.`dateTime`, expires, seller, category, A.extra
FROM bid AS B INNER JOIN auction AS A ON B.auction = A.id WHERE A.category = 10;
-- name: q21
SELECT auction, bidder, price, channel, CASE WHEN LOWER(channel) = 'apple' THEN '0' WHEN LOWER(channel) = 'google' THEN '1'
  ELSE REGEXP_EXTRACT(url, '(&|^)channel_id=([^&]*)', 2) END AS channel_id
FROM bid WHERE REGEXP_EXTRACT(url, '(&|^)channel_id=([^&]*)', 2) IS NOT NULL OR LOWER(channel) IN ('apple', 'google');
-- name: q22
SELECT auction, bidder, price, channel, SPLIT_INDEX(url, '/', 3) AS dir1, SPLIT_INDEX(url, '/', 4) AS dir2 FROM bid;
-- name: q23
SELECT bidder, price, B.extra AS bid_extra, P.id AS person_id, name, city, itemName, A.`dateTime` AS auction_dateTime,
  category FROM bid B JOIN person P ON P.id = B.bidder JOIN auction A ON A.seller = B.bidder;
