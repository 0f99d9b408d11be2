-- Repairs one day: inserts its rows again as of the tag, while the streams run. A row that has
-- changed since has a later event_time and is not overwritten.
SET 'execution.runtime-mode' = 'batch';
USE membership;

INSERT INTO ods_member_order
SELECT v_date, id, member_id, agent_id, product_id, city_id, kind, amount, status, event_time
FROM ods_member_order VERSION AS OF 'before-the-mistake'
WHERE v_date BETWEEN '2000-01-01' AND '2000-01-01';
