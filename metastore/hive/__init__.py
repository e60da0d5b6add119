"""What a Hive Metastore knows of tables."""
