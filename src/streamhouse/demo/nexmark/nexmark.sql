-- Views of Nexmark's queries 4, 7 and 8 over events that arrive at a steady rate.
CREATE DATABASE IF NOT EXISTS nexmark;
USE nexmark;

CREATE TEMPORARY TABLE events (
  event_type INT,
  person ROW<id BIGINT, name STRING, city STRING, state STRING, `dateTime` TIMESTAMP(3)>,
  auction ROW<id BIGINT, `dateTime` TIMESTAMP(3), expires TIMESTAMP(3), seller BIGINT, category BIGINT>,
  bid ROW<auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, `dateTime` TIMESTAMP(3)>
) WITH ('connector' = 'nexmark', 'rows-per-second' = '$events_per_second', 'events.num' = '$events');

CREATE TABLE IF NOT EXISTS person (
  id BIGINT, name STRING, city STRING, state STRING, `dateTime` TIMESTAMP(3),
  WATERMARK FOR `dateTime` AS `dateTime` - INTERVAL '1' SECOND
);
CREATE TABLE IF NOT EXISTS auction (
  id BIGINT, `dateTime` TIMESTAMP(3), expires TIMESTAMP(3), seller BIGINT, category BIGINT,
  WATERMARK FOR `dateTime` AS `dateTime` - INTERVAL '1' SECOND
);
CREATE TABLE IF NOT EXISTS bid (
  auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, `dateTime` TIMESTAMP(3),
  WATERMARK FOR `dateTime` AS `dateTime` - INTERVAL '1' SECOND
);
INSERT INTO person SELECT events.person.* FROM events WHERE event_type = 0;
INSERT INTO auction SELECT events.auction.* FROM events WHERE event_type = 1;
INSERT INTO bid SELECT events.bid.* FROM events WHERE event_type = 2;

-- q4: the average of the highest bids of the auctions in a category.
CREATE MATERIALIZED VIEW IF NOT EXISTS category_prices AS
SELECT category, COUNT(*) AS auctions, AVG(final) AS average, MAX(last_bid) AS last_bid
FROM (
  SELECT a.category, MAX(b.price) AS final, MAX(b.`dateTime`) AS last_bid
  FROM auction AS a JOIN bid AS b
    ON a.id = b.auction AND b.`dateTime` BETWEEN a.`dateTime` AND a.expires
  GROUP BY a.id, a.category
)
GROUP BY category;

-- q7: the highest price of each ten seconds.
CREATE MATERIALIZED VIEW IF NOT EXISTS highest_bids AS
SELECT window_start, window_end, MAX(price) AS price, COUNT(*) AS bids
FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(`dateTime`), INTERVAL '10' SECOND))
GROUP BY window_start, window_end;

-- q8: who opened auctions in the same ten seconds in which they came, by state.
CREATE MATERIALIZED VIEW IF NOT EXISTS new_sellers AS
SELECT p.state, COUNT(DISTINCT p.id) AS sellers, COUNT(*) AS auctions
FROM TABLE(TUMBLE(TABLE person, DESCRIPTOR(`dateTime`), INTERVAL '10' SECOND)) AS p
JOIN TABLE(TUMBLE(TABLE auction, DESCRIPTOR(`dateTime`), INTERVAL '10' SECOND)) AS a
  ON p.id = a.seller AND p.window_start = a.window_start AND p.window_end = a.window_end
GROUP BY p.state;
