-- DWS: aggregates, which each change of an order updates.
CREATE TABLE IF NOT EXISTS dws_agent_score (
  v_date STRING,
  agent_id INT,
  orders BIGINT,
  score DECIMAL(20, 4),
  update_time TIMESTAMP(3),
  PRIMARY KEY (v_date, agent_id) NOT ENFORCED
) PARTITIONED BY (v_date) WITH (
  'bucket' = '1',
  'merge-engine' = 'aggregation',
  'fields.orders.aggregate-function' = 'sum',
  'fields.score.aggregate-function' = 'sum',
  'fields.update_time.aggregate-function' = 'last_non_null_value'
);

INSERT INTO dws_agent_score
SELECT v_date, agent_id, COUNT(*), SUM(score), LAST_VALUE(event_time)
FROM dwd_member_order
GROUP BY v_date, agent_id;

-- A member counts once a month, however many orders there are.
CREATE MATERIALIZED VIEW dws_member_month
  (v_month, new_members, renewed_members, amount, PRIMARY KEY (v_month) NOT ENFORCED) AS
SELECT
  v_month,
  COUNT(DISTINCT CASE WHEN kind = 'new' THEN member_id END),
  COUNT(DISTINCT CASE WHEN kind = 'renew' THEN member_id END),
  CAST(SUM(amount) AS DECIMAL(20, 2))
FROM dwd_member_order
GROUP BY v_month;
