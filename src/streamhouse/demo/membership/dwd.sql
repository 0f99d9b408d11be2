-- DWD: each order with its product, agent, city and score.
CREATE TABLE IF NOT EXISTS dwd_member_order (
  v_date STRING,
  id BIGINT,
  v_month STRING,
  member_id BIGINT,
  kind STRING,
  agent_id INT,
  agent_name STRING,
  team STRING,
  agent_level INT,
  product STRING,
  city STRING,
  region STRING,
  amount DECIMAL(12, 2),
  score DECIMAL(20, 4),
  event_time TIMESTAMP(3),
  PRIMARY KEY (v_date, id) NOT ENFORCED
) PARTITIONED BY (v_date) WITH ('bucket' = '4');

INSERT INTO dwd_member_order
SELECT /*+ LOOKUP('table'='p', 'strategy'='full'), LOOKUP('table'='a', 'strategy'='partial'),
  LOOKUP('table'='c', 'strategy'='bucket') */
  o.v_date, o.id, SUBSTRING(o.v_date, 1, 7), o.member_id, o.kind,
  o.agent_id, a.name, a.team, a.level, p.name, c.name, c.region,
  o.amount, CAST(o.amount * p.points AS DECIMAL(20, 4)), o.event_time
FROM member_order_changes AS o
JOIN dim_product FOR SYSTEM_TIME AS OF o.proc_time AS p ON o.product_id = p.id
JOIN dim_agent FOR SYSTEM_TIME AS OF o.proc_time AS a ON o.agent_id = a.id
JOIN dim_city FOR SYSTEM_TIME AS OF o.proc_time AS c ON o.city_id = c.id;
