"""Selectivity of predicates on one table: from histograms and common values, or counted on a sample of rows.

START HERE: selectivity.py.
"""
