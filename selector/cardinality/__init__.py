"""Cardinality of every node of a plan, from statistics of the tables below it.

START HERE: tree.py; ``predicates/`` estimates the selectivity of filters on one table.
"""
