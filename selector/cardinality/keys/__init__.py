"""Join keys: classes of equal columns, divided into cells, and each table's rows per cell.

START HERE: classes.py.
"""
