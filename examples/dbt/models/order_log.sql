{{ config(materialized='incremental', unique_key='id') }}
SELECT id, price, order_time FROM {{ source('shop', 'orders') }}
{% if is_incremental() %}WHERE order_time > (SELECT MAX(order_time) FROM {{ this }}){% endif %}
