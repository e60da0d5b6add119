"""DuckDB as the embedded fast engine: one query per worker process."""
