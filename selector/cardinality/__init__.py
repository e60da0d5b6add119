"""How many rows come out of every node of a plan, from statistics of the tables below it.

START HERE: tree.py; ``predicates/`` says which share of one table's rows a filter keeps.
"""
