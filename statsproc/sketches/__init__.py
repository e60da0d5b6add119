"""Sketches of values: small, of fixed size, and mergeable in any number. No Spark, no files.

START HERE: column_summary.py; ``table_summary.py`` holds a table's.
"""
