"""A statement of Spark's in DuckDB's words, with Spark's answers.

START HERE: statement.py, over queries.py and expressions.py.
"""
