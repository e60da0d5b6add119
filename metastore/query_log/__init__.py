"""How what happens to queries is written: for many of them at once.

START HERE: writer.py, the thread that writes; changes.py says which rows.
"""
