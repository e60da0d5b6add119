"""Which share of a table's rows a predicate keeps: from histograms and common values, or counted on a sample of rows.

START HERE: selectivity.py.
"""
