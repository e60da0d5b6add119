{{ config(
    enabled=target.type == 'spark',
    materialized='incremental',
    incremental_strategy='merge',
    file_format='delta',
    unique_key='tree_id') }}

select tree_id, count(*) as harvests, sum(kilos) as kilos from {{ ref('stg_harvests') }} group by tree_id
