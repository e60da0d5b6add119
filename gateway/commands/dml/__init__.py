"""Statements that write, change or delete rows; ``gateway/execution/writing.py`` carries them out.

START HERE: inserts.py.
"""
