"""Functions, operators and casts of Spark in DuckDB's words. START HERE: scalars.py."""
