select a.kilos, b.kilos as logged
from (select sum(kilos) as kilos from {{ ref('stg_harvests') }}) a
cross join (select sum(kilos) as kilos from {{ ref('harvest_log') }}) b
where a.kilos <> b.kilos
