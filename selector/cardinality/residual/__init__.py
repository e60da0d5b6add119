"""Residual filters, above other nodes than scans: on joined rows, on groups, and on the pairs of a join.

START HERE: filters.py. Conditions that compare two relations (comparisons.py) are evaluated on samples of both
(compared.py): matching rows (sides.py), whose pairs are counted (pairs.py). Conditions on aggregates: aggregates.py,
with aggregate_conditions.py, which reads them, and measured.py, which computes aggregates on samples.
"""
