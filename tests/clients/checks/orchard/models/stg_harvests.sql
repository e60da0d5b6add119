select harvest_id, tree_id, cast(picked_at as timestamp) as picked_at, year(cast(picked_at as timestamp)) as picked_year, kilos
from {{ ref('harvests') }}
