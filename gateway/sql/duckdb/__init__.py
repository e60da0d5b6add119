"""A statement of Spark's in DuckDB's words, with Spark's answers. START HERE: expressions.py."""
