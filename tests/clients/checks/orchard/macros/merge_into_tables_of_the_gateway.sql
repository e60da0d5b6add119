{# dbt-spark lets MERGE and snapshots only into delta, iceberg and hudi. The gateway merges into its own tables, too. #}

{% macro dbt_spark_validate_get_incremental_strategy(raw_strategy, file_format) %}
  {% do return(raw_strategy) %}
{% endmacro %}

{% materialization snapshot, adapter='spark' %}
  {% set target_relation = this.incorporate(type='table') %}
  {% set there = load_relation(this) is not none %}
  {% set strategy = strategy_dispatch(config.get('strategy'))(model, 'snapshotted_data', 'source_data', config, there) %}
  {{ run_hooks(pre_hooks) }}
  {% if there %}
    {% set staging = spark_build_snapshot_staging_table(strategy, sql, target_relation) %}
    {% call statement('main') %}{{ snapshot_merge_sql(target_relation, staging, []) }}{% endcall %}
    {% do post_snapshot(staging) %}
  {% else %}
    {% call statement('main') %}
      {{ create_table_as(False, target_relation, build_snapshot_table(strategy, model['compiled_code'])) }}
    {% endcall %}
  {% endif %}
  {{ run_hooks(post_hooks) }}
  {{ return({'relations': [target_relation]}) }}
{% endmaterialization %}
