"""What is kept of values while they are read: small, of fixed size, and any number of them merge. No Spark, no files.

START HERE: column_summary.py; ``table_summary.py`` holds a table's.
"""
