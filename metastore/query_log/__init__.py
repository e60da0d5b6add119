"""The writer of the query log: one transaction for many queries (group commit).

START HERE: writer.py, the thread that writes; changes.py says which rows.
"""
