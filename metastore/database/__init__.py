"""The database under the metastore: its tables, how it is reached, and how arrays lie in it.

START HERE: models.py, the tables.
"""
