{{ config(materialized='incremental', incremental_strategy='append') }}

select harvest_id, tree_id, kilos from {{ ref('stg_harvests') }}
{% if is_incremental() %}
where harvest_id > (select max(harvest_id) from {{ this }})
{% endif %}
