{{ config(materialized='table', primary_key='country') }}
SELECT country, COUNT(*) AS customers FROM {{ ref('customers') }} GROUP BY country
