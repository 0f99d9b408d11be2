-- The business in MySQL: orders of members, and the tables that they refer to.
DROP DATABASE IF EXISTS membership;
CREATE DATABASE membership;

CREATE TABLE membership.product (
  id INT PRIMARY KEY,
  name VARCHAR(40) NOT NULL,
  points DECIMAL(6, 2) NOT NULL
);

CREATE TABLE membership.agent (
  id INT PRIMARY KEY,
  name VARCHAR(40) NOT NULL,
  team VARCHAR(20) NOT NULL,
  level INT NOT NULL
);

CREATE TABLE membership.member_order (
  id BIGINT PRIMARY KEY,
  v_date CHAR(10) NOT NULL,
  member_id BIGINT NOT NULL,
  agent_id INT NOT NULL,
  product_id INT NOT NULL,
  city_id INT NOT NULL,
  kind VARCHAR(8) NOT NULL,
  amount DECIMAL(12, 2) NOT NULL,
  status VARCHAR(12) NOT NULL,
  event_time DATETIME(3) NOT NULL
);

-- The events that the outlets sent, in order of arrival. Only the verification reads this table: it
-- has the correct state of each order, whereas in `member_order` a late event overwrites a newer one.
CREATE TABLE membership.member_event (
  seq BIGINT AUTO_INCREMENT PRIMARY KEY,
  id BIGINT NOT NULL,
  v_date CHAR(10) NOT NULL,
  member_id BIGINT NOT NULL,
  agent_id INT NOT NULL,
  product_id INT NOT NULL,
  city_id INT NOT NULL,
  kind VARCHAR(8) NOT NULL,
  amount DECIMAL(12, 2) NOT NULL,
  status VARCHAR(12) NOT NULL,
  event_time DATETIME(3) NOT NULL,
  KEY (id, event_time, seq)
);

INSERT INTO membership.product VALUES
  (1, 'month', 1.00), (2, 'quarter', 1.25), (3, 'half year', 1.50), (4, 'year', 2.00),
  (5, 'family', 2.25), (6, 'lifetime', 4.00);

INSERT INTO membership.agent VALUES
  (1, 'Desk', 'house', 1), (2, 'Ada', 'north', 1), (3, 'Bruno', 'north', 2),
  (4, 'Chloé', 'north', 1), (5, 'Dmitri', 'south', 3), (6, 'Elif', 'south', 1),
  (7, 'Fatou', 'south', 2), (8, 'Goran', 'east', 1), (9, 'Hiroko', 'east', 2),
  (10, 'Ivana', 'east', 1), (11, 'Jonas', 'west', 1), (12, 'Katia', 'west', 2),
  (13, 'Zoe', 'act', 1);
