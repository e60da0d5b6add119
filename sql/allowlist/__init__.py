"""The allow-list of syntax, types and functions. Everything that is not named here is refused.

START HERE: syntax.py, which checks a tree; functions.py is the one list of Spark's functions.
"""
