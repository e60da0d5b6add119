"""One repository per subject: each reads and writes its tables, and gives out frozen records.

START HERE: catalog.py, the tables that are registered.
"""
