"""A table's files, read side by side in pieces: which of them, by which task, down to one summary per partition.

START HERE: scan.py.
"""
