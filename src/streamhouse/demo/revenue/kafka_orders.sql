CREATE TEMPORARY TABLE order_generator (
  order_id BIGINT,
  customer_id INT,
  price DOUBLE,
  order_time TIMESTAMP(3)
) WITH (
  'connector' = 'kafka',
  'topic' = 'orders',
  'properties.bootstrap.servers' = '${servers}',
  'properties.group.id' = 'revenue',
  'scan.startup.mode' = 'earliest-offset',
  'format' = 'json'
);
