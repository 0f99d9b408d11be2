{{ config(materialized='materialized_view') }}
SELECT c.country, COUNT(*) AS orders, SUM(o.price) AS revenue
FROM {{ source('shop', 'orders') }} AS o JOIN {{ ref('customers') }} AS c ON o.customer_id = c.id
GROUP BY c.country
