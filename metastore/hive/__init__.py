"""What a Hive Metastore knows of tables.

START HERE: client.py.
"""
