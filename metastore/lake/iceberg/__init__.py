"""Apache Iceberg, by pyiceberg. START HERE: reading.py; what is written: writing.py.

A table belongs to a catalog (catalogs.py), or lies in a folder (folder_catalog.py).
"""
