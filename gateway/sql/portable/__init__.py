"""A statement of Spark's in DuckDB's words, with Spark's answers; or what about it DuckDB would answer differently."""
