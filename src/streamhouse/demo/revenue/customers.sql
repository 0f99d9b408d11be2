-- Fills `customers` in MySQL: the auxiliary job of the demo. It ends by itself.
CREATE TEMPORARY TABLE customers (
  id INT,
  name STRING,
  country STRING,
  zip STRING,
  PRIMARY KEY (id) NOT ENFORCED
) WITH (
  'connector' = 'jdbc',
  'url' = 'jdbc:mysql://127.0.0.1:${port}/shop',
  'table-name' = 'customers',
  'username' = '${username}',
  'password' = '${password}'
);

INSERT INTO customers VALUES
  (1, 'Anna', 'Poland', '00-001'),
  (2, 'Björn', 'Sweden', '11120'),
  (3, 'Carla', 'Italy', '00118'),
  (4, 'Dieter', 'Germany', '10115'),
  (5, 'Elena', 'Spain', '28001'),
  (6, 'Fiona', 'Ireland', 'D01'),
  (7, 'Gabrielle', 'France', '75001'),
  (8, 'Hana', 'Japan', '100-0001'),
  (9, 'Inês', 'Portugal', '1000'),
  (10, 'Jack', 'Canada', 'K1A');
