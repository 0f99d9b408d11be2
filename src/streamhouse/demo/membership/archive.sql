-- An archive without a key, to be clustered: CALL sys.compact(…, order_strategy => 'zorder').
SET 'execution.runtime-mode' = 'batch';
USE membership;

DROP TABLE IF EXISTS order_archive;
CREATE TABLE order_archive (
  v_date STRING,
  id BIGINT,
  agent_id INT,
  member_id BIGINT,
  score DECIMAL(20, 4)
) WITH ('bucket' = '-1', 'target-file-size' = '16 kb');

INSERT INTO order_archive SELECT v_date, id, agent_id, member_id, score FROM dwd_member_order;
