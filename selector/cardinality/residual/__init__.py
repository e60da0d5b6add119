"""Residual filters, above other nodes than scans: on joined rows, on groups, and on the pairs of a join.

START HERE: filters.py. Conditions that compare two relations are evaluated on pairs of their sampled rows (pairs.py).
Conditions on aggregates: aggregates.py, with aggregate_conditions.py, which reads them, and measured.py, which computes
aggregates on samples. ADR 52 says what each part is worth.
"""
