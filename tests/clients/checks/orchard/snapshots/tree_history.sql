{% snapshot tree_history %}
{{ config(
    enabled=target.type == 'spark',
    target_schema=target.schema,
    unique_key='tree_id',
    strategy='check',
    file_format='iceberg',
    check_cols=['kind']) }}
select tree_id, kind, planted from {{ ref('trees') }}
{% endsnapshot %}
