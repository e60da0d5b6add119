"""Rights on tables and columns, row filters and column masks. START HERE: control.py."""
