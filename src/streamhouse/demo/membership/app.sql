-- APP: the two boards.
CREATE TABLE IF NOT EXISTS app_sprint_board (
  agent_id INT,
  orders BIGINT,
  score DECIMAL(20, 4),
  update_time TIMESTAMP(3),
  PRIMARY KEY (agent_id) NOT ENFORCED
) WITH (
  'bucket' = '1',
  'merge-engine' = 'aggregation',
  'fields.orders.aggregate-function' = 'sum',
  'fields.score.aggregate-function' = 'sum',
  'fields.update_time.aggregate-function' = 'last_non_null_value'
);

CREATE TABLE IF NOT EXISTS app_member_board (
  v_month STRING,
  new_members BIGINT,
  renewed_members BIGINT,
  amount DECIMAL(20, 2),
  PRIMARY KEY (v_month) NOT ENFORCED
) WITH (
  'bucket' = '1',
  'merge-engine' = 'aggregation',
  'fields.new_members.aggregate-function' = 'sum',
  'fields.renewed_members.aggregate-function' = 'sum',
  'fields.amount.aggregate-function' = 'sum'
);

INSERT INTO app_sprint_board SELECT agent_id, orders, score, update_time FROM dws_agent_score;

INSERT INTO app_member_board
SELECT v_month, new_members, renewed_members, amount FROM dws_member_month;
