"""The steps from an empty database to the newest schema.

START HERE: 0001_first_schema.py.
"""
