"""Filters that stand above other nodes than scans: of joined rows, of groups, and of pairs that a join puts together.

START HERE: filters.py. Conditions that compare two relations (comparisons.py) are answered by samples of both
(compared.py): by rows that meet (sides.py), whose pairs are counted (pairs.py). Conditions on aggregates:
aggregates.py, over asked.py, which reads them, and measured.py, which computes aggregates on samples.
"""
