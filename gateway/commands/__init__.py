"""Commands, a family in each file: what it is, how it is read, which rights it needs, what it does and replies.

START HERE: registry.py, all families.
"""
