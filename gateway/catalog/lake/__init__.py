"""Lake tables for statements. START HERE: lake_tables.py, snapshots and commits.

Files in object stores: object_files.py. Iceberg catalogs: lake_catalogs.py.
"""
