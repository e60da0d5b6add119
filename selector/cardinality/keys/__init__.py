"""Keys of joins: classes of columns that are equal, over one cut of their line, and what a table has in each cell.

START HERE: classes.py.
"""
