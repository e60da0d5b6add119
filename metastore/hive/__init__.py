"""Tables of a Hive Metastore.

START HERE: client.py.
"""
