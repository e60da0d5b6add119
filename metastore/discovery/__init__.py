"""Discovery of tables: format, columns and partitions of a folder or file, read from the files in a process of its own.

START HERE: inspection.py.
"""
