"""Data that is made or taken in: the paper's bookstore, and delimited text, both into Parquet.

START HERE: bookstore.py.
"""
