{{ config(materialized='view') }}
SELECT * FROM {{ source('shop', 'orders') }} WHERE price > 10
