{{ config(materialized='table') }}

with picked as (
    select t.kind, h.kilos from {{ ref('stg_harvests') }} h join {{ ref('trees') }} t on t.tree_id = h.tree_id
)

select kind, count(*) as harvests, sum(kilos) as kilos from picked group by kind
