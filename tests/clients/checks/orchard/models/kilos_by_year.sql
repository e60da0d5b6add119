{{ config(materialized='incremental', incremental_strategy='insert_overwrite', partition_by=['picked_year']) }}

select tree_id, sum(kilos) as kilos, picked_year from {{ ref('stg_harvests') }}
{% if is_incremental() %}
where picked_year >= 2024
{% endif %}
group by tree_id, picked_year
