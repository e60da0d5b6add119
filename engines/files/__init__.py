"""A table's files and their types, determined once for all readers.

START HERE: listing.py.
"""
