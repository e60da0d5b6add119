"""Filters that stand above other nodes than scans: of joined rows, of groups, and of pairs that a join puts together.

START HERE: filters.py. Conditions on aggregates: aggregates.py, over asked.py, which reads them, and measured.py, which
computes aggregates on samples.
"""
